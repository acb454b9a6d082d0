// One parallel region for the whole MLP: every thread norms all rows by itself (cheaper than a barrier), then gate and up
// rows are shared, then, behind one barrier, the rows of the down projection.
constexpr int64_t PAIRS = TILES / 2, UP_GROUPS = (F + PAIRS * W - 1) / (PAIRS * W), UP_BYTES = group_bytes(H);
constexpr int64_t DOWN_GROUPS = (H + TILES * W - 1) / (TILES * W), DOWN_BYTES = group_bytes(F);

KW_PREPARE(args, 5) {
  auto weight = args.tensor<float>(0, 1);
  auto w_gate_up = args.tensor<uint8_t>(1, 2);
  auto w_down = args.tensor<uint8_t>(2, 2);
  auto up = args.tensor<uint8_t>(3, 1);
  auto down = args.tensor<uint8_t>(4, 1);
  bool shapes = weight.size[0] == H && w_gate_up.size[0] == 2 * F && w_gate_up.size[1] == raw_bytes(H) &&
                w_down.size[0] == H && w_down.size[1] == raw_bytes(F);
  if (!args.require(shapes, "the weights have another shape")) return;
  if (!args.require(up.size[0] == UP_GROUPS * UP_BYTES && down.size[0] == DOWN_GROUPS * DOWN_BYTES, "packed size"))
    return;
#pragma omp parallel for schedule(static)
  for (int64_t pair = 0; pair < UP_GROUPS * PAIRS; ++pair)
    for (int lane = 0; lane < W && pair * W + lane < F; ++lane)
      for (int u = 0; u < 2; ++u)
        pack_row(w_gate_up.data + (pair * W + lane + u * F) * raw_bytes(H), H, up.data + pair / PAIRS * UP_BYTES,
                 2 * (pair % PAIRS) + u, lane);
#pragma omp parallel for schedule(static)
  for (int64_t tile = 0; tile < DOWN_GROUPS * TILES; ++tile)
    for (int lane = 0; lane < W && tile * W + lane < H; ++lane)
      pack_row(w_down.data + (tile * W + lane) * raw_bytes(F), F, down.data + tile / TILES * DOWN_BYTES, tile % TILES,
               lane);
}

struct Call {
  const float *x, *residual, *weight;
  const uint8_t *up, *down;
  float *y, *total;
  float eps;
  int64_t tokens;
};

template <int T> static inline void gate_up(const Call& c, int64_t g, const float* normed, float* hidden) {
  constexpr int U = T == 1 ? TILES : T <= 4 ? 2 : 1;  // accumulators must stay in registers
  vf out[TILES][T];
  for (int first = 0; first < TILES; first += U)
    dot<false, U, T, H>(c.up + g * UP_BYTES, first, normed, nullptr, out + first);
  for (int p = 0; p < PAIRS; ++p) {
    int64_t row = (g * PAIRS + p) * W;
    for (int t = 0; t < T && row < F; ++t)
      store_rows(hidden + t * F + row, silu(out[2 * p][t]) * out[2 * p + 1][t], F - row);
  }
}

template <int T> static inline void project_down(const Call& c, int64_t g, const float* hidden) {
  constexpr int U = T == 1 ? TILES : T == 2 ? 2 : 1;
  for (int first = 0; first < TILES; first += U) {
    vf out[U][T];
    dot<false, U, T, F>(c.down + g * DOWN_BYTES, first, hidden, nullptr, out);
    for (int u = 0; u < U; ++u) {
      int64_t row = (g * TILES + first + u) * W;
      for (int64_t t = 0; t < c.tokens && row < H; ++t) store_rows(c.y + t * H + row, out[u][t], H - row);
    }
  }
}

template <int T> static void run(const Call& c) {
  alignas(64) float hidden[T * F];
#pragma omp parallel
  {
    alignas(64) float normed[T * H], mine[H];
    for (int64_t t = 0; t < c.tokens; ++t)
      norm_row(c.x + t * H, c.residual + t * H, c.weight, c.eps, normed + t * H,
               omp_get_thread_num() == 0 ? c.total + t * H : mine);
    memset(normed + c.tokens * H, 0, sizeof(float) * (T - c.tokens) * H);
#pragma omp for schedule(SCHEDULE)
    for (int64_t g = 0; g < UP_GROUPS; ++g) gate_up<T>(c, g, normed, hidden);
#pragma omp for schedule(SCHEDULE) nowait
    for (int64_t g = 0; g < DOWN_GROUPS; ++g) project_down<T>(c, g, hidden);
  }
}

KW_RUN(args, 8) {
  auto x = args.tensor<float>(0, 2);
  auto residual = args.tensor<float>(1, 2);
  float eps = (float)args.number(2);
  auto weight = args.tensor<float>(3, 1);
  auto up = args.tensor<uint8_t>(4, 1);
  auto down = args.tensor<uint8_t>(5, 1);
  auto y = args.tensor<float>(6, 2);
  auto total = args.tensor<float>(7, 2);
  int64_t tokens = x.size[0];
  bool same = residual.size[0] == tokens && y.size[0] == tokens && total.size[0] == tokens && weight.size[0] == H;
  bool wide = x.size[1] == H && residual.size[1] == H && y.size[1] == H && total.size[1] == H;
  bool packed = up.size[0] == UP_GROUPS * UP_BYTES && down.size[0] == DOWN_GROUPS * DOWN_BYTES;
  if (!args.require(same && wide && packed, "the tensors do not agree in shape")) return;
  if (!args.require(tokens <= 8, "this kernel takes 1 to 8 tokens") || tokens == 0) return;
  Call c{x.data, residual.data, weight.data, up.data, down.data, y.data, total.data, eps, tokens};
  tokens == 1 ? run<1>(c) : tokens == 2 ? run<2>(c) : tokens <= 4 ? run<4>(c) : run<8>(c);
}
