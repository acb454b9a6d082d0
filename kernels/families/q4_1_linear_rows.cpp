// y = x w^T, weights packed in tiles of W rows.
constexpr int64_t BLOCKS = K / 32, TOTAL_TILES = (N + W - 1) / W, GROUPS = (TOTAL_TILES + TILES - 1) / TILES;
constexpr int64_t GROUP_BYTES = TILES * BLOCKS * TILE_BLOCK;

KW_PREPARE(args, 2) {
  auto w = args.tensor<uint8_t>(0, 2);
  auto packed = args.tensor<uint8_t>(1, 1);
  if (!args.require(w.size[0] == N && w.size[1] == BLOCKS * 20, "w is not [N, K/32*20]")) return;
  if (!args.require(packed.size[0] == GROUPS * GROUP_BYTES, "packed has another size")) return;
  for (int64_t row = 0; row < GROUPS * TILES * W; ++row) {
    int64_t tile = row / W;
    const uint8_t* source = row < N ? w.data + row * BLOCKS * 20 : nullptr;
    pack_row(source, BLOCKS, packed.data + tile / TILES * GROUP_BYTES, tile % TILES, row % W);
  }
}

static void run_fold(const uint8_t* packed, const float* x, float* y) {
  alignas(64) float scaled[K], sums[BLOCKS];
  Activations a = scale_activations(x, K, scaled, sums);
#pragma omp parallel for schedule(SCHEDULE) if (GROUPS >= MIN_GROUPS)
  for (int64_t g = 0; g < GROUPS; ++g) {
    vf out[TILES][1];
    dot_fold<TILES>(packed + g * GROUP_BYTES, 0, BLOCKS, a, out);
#pragma GCC unroll 16
    for (int u = 0; u < TILES; ++u) {
      int64_t row = (g * TILES + u) * W;
      if (row < N) store_rows(y + row, out[u][0], N - row);
    }
  }
}

template <int T> static void run(const uint8_t* packed, const float* x, float* y, int64_t tokens) {
  if constexpr (T == 1 && DECODE_FOLD) return run_fold(packed, x, y);
  constexpr int U = T == 1 ? TILES : (T == 2 && TILES >= 2 ? 2 : 1);  // accumulators must stay in registers
#pragma omp parallel for schedule(SCHEDULE) if (GROUPS >= MIN_GROUPS)
  for (int64_t g = 0; g < GROUPS; ++g)
    for (int first = 0; first < TILES; first += U) {
      vf out[U][T];
      dot<U, T>(packed + g * GROUP_BYTES, first, BLOCKS, x, K, out);
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
