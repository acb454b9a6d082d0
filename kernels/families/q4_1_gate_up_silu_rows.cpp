// y = silu(x w_gate^T) * (x w_up^T): a group holds TILES/2 pairs of a gate tile and the up tile of the same rows.
constexpr int64_t BLOCKS = H / 32, PAIRS = TILES / 2, TOTAL_PAIRS = (F + W - 1) / W;
constexpr int64_t GROUPS = (TOTAL_PAIRS + PAIRS - 1) / PAIRS, GROUP_BYTES = TILES * BLOCKS * TILE_BLOCK;

KW_PREPARE(args, 2) {
  auto w = args.tensor<uint8_t>(0, 2);
  auto packed = args.tensor<uint8_t>(1, 1);
  if (!args.require(w.size[0] == 2 * F && w.size[1] == BLOCKS * 20, "w is not [2F, H/32*20]")) return;
  if (!args.require(packed.size[0] == GROUPS * GROUP_BYTES, "packed has another size")) return;
  for (int64_t row = 0; row < GROUPS * PAIRS * W; ++row) {
    int64_t pair = row / W;
    for (int up = 0; up < 2; ++up) {
      const uint8_t* source = row < F ? w.data + (row + up * F) * BLOCKS * 20 : nullptr;
      pack_row(source, BLOCKS, packed.data + pair / PAIRS * GROUP_BYTES, 2 * (pair % PAIRS) + up, row % W);
    }
  }
}

static void run_fold(const uint8_t* packed, const float* x, float* y) {
  alignas(64) float scaled[H], sums[BLOCKS];
  Activations a = scale_activations(x, H, scaled, sums);
#pragma omp parallel for schedule(SCHEDULE) if (GROUPS >= MIN_GROUPS)
  for (int64_t g = 0; g < GROUPS; ++g) {
    vf out[TILES][1];
    dot_fold<TILES>(packed + g * GROUP_BYTES, 0, BLOCKS, a, out);
#pragma GCC unroll 8
    for (int u = 0; u < TILES; u += 2) {
      int64_t row = (g * PAIRS + u / 2) * W;
      if (row < F) store_rows(y + row, silu(out[u][0]) * out[u + 1][0], F - row);
    }
  }
}

template <int T> static void run(const uint8_t* packed, const float* x, float* y, int64_t tokens) {
  if constexpr (T == 1 && DECODE_FOLD) return run_fold(packed, x, y);
  constexpr int U = T <= 2 ? TILES : T == 4 ? 2 : 1;  // accumulators must stay in registers
#pragma omp parallel for schedule(SCHEDULE) if (GROUPS >= MIN_GROUPS)
  for (int64_t g = 0; g < GROUPS; ++g) {
    vf out[TILES][T];
    for (int first = 0; first < TILES; first += U)
      dot<U, T>(packed + g * GROUP_BYTES, first, BLOCKS, x, H, out + first);
    for (int p = 0; p < PAIRS; ++p) {
      int64_t row = (g * PAIRS + p) * W;
      for (int t = 0; t < tokens && row < F; ++t)
        store_rows(y + t * F + row, silu(out[2 * p][t]) * out[2 * p + 1][t], F - row);
    }
  }
}

KW_RUN(args, 3) {
  auto x = args.tensor<float>(0, 2);
  auto packed = args.tensor<uint8_t>(1, 1);
  auto y = args.tensor<float>(2, 2);
  int64_t tokens = x.size[0];
  if (!args.require(x.size[1] == H && y.size[0] == tokens && y.size[1] == F, "x or y has another shape")) return;
  if (!args.require(packed.size[0] == GROUPS * GROUP_BYTES, "packed has another size")) return;
  run_any(args, packed.data, x.data, y.data, tokens);
}
