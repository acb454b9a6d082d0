// y = x w^T, weights packed in tiles of W rows.
constexpr int64_t GROUPS = (N + TILES * W - 1) / (TILES * W), GROUP_BYTES = group_bytes(K);

KW_PREPARE(args, 2) {
  auto w = args.tensor<uint8_t>(0, 2);
  auto packed = args.tensor<uint8_t>(1, 1);
  if (!args.require(w.size[0] == N && w.size[1] == raw_bytes(K), "w is not [N, bytes of K weights]")) return;
  if (!args.require(packed.size[0] == GROUPS * GROUP_BYTES, "packed has another size")) return;
#pragma omp parallel for schedule(static)
  for (int64_t tile = 0; tile < GROUPS * TILES; ++tile)
    for (int lane = 0; lane < W && tile * W + lane < N; ++lane)  // padding stays zero
      pack_row(w.data + (tile * W + lane) * raw_bytes(K), K, packed.data + tile / TILES * GROUP_BYTES, tile % TILES, lane);
}

template <int T> static void run(const uint8_t* packed, const float* x, float* y, int64_t tokens) {
  constexpr bool FOLD = T == 1 && DECODE_FOLD;
  constexpr int U = T == 1 ? TILES : (T == 2 && TILES >= 2 ? 2 : 1);  // accumulators must stay in registers
  alignas(64) float raised[FOLD ? K : 1], sums[FOLD ? K / SUB : 1];
  if constexpr (FOLD) fold_activations(x, K, raised, sums);
  const float* in = FOLD ? raised : x;
#pragma omp parallel for schedule(SCHEDULE) if (GROUPS >= MIN_GROUPS)
  for (int64_t g = 0; g < GROUPS; ++g)
    for (int first = 0; first < TILES; first += U) {
      vf out[U][T];
      dot<FOLD, U, T, K>(packed + g * GROUP_BYTES, first, in, sums, out);
      for (int u = 0; u < U; ++u) {
        int64_t row = (g * TILES + first + u) * W;
        for (int t = 0; t < tokens && row < N; ++t) store_rows(y + t * N + row, out[u][t], N - row);
      }
    }
}

KW_RUN(args, 3) {
  auto x = args.tensor<float>(0, 2);
  auto packed = args.tensor<uint8_t>(1, 1);
  auto y = args.tensor<float>(2, 2);
  int64_t tokens = x.size[0];
  if (!args.require(x.size[1] == K && y.size[0] == tokens && y.size[1] == N, "x or y has another shape")) return;
  if (!args.require(packed.size[0] == GROUPS * GROUP_BYTES, "packed has another size")) return;
  run_any(args, packed.data, x.data, y.data, tokens);
}
