// y = silu(x w_gate^T) * (x w_up^T), weights read as they are in the file, ROWS/2 pairs of a gate and an up row at a time;
// silu is taken on W results at once.
constexpr int64_t BLOCKS = H / 32, PAIRS = ROWS / 2, TILES_OF_W = (F + W - 1) / W;

template <int T> static void run(const uint8_t* w, const float* x, float* y, int64_t tokens) {
#pragma omp parallel for schedule(SCHEDULE) if (TILES_OF_W >= MIN_GROUPS)
  for (int64_t tile = 0; tile < TILES_OF_W; ++tile) {
    alignas(64) float gate[T][W], up[T][W];
    for (int64_t lane = 0; lane < W; lane += PAIRS) {
      const uint8_t* rows[ROWS];
      for (int p = 0; p < PAIRS; ++p) {
        int64_t row = tile * W + lane + p < F ? tile * W + lane + p : F - 1;  // past the end, repeat the last row
        rows[2 * p] = w + row * BLOCKS * 20;
        rows[2 * p + 1] = w + (row + F) * BLOCKS * 20;
      }
      float out[ROWS][T];
      dot<ROWS, T>(rows, BLOCKS, x, H, out);
      for (int p = 0; p < PAIRS; ++p)
        for (int t = 0; t < T; ++t) {
          gate[t][lane + p] = out[2 * p][t];
          up[t][lane + p] = out[2 * p + 1][t];
        }
    }
    for (int t = 0; t < tokens; ++t) {
      alignas(64) float result[W];
      store(result, silu(load(gate[t])) * load(up[t]));
      for (int64_t lane = 0; lane < W && tile * W + lane < F; ++lane) y[t * F + tile * W + lane] = result[lane];
    }
  }
}

KW_RUN(args, 3) {
  auto x = args.tensor<float>(0, 2);
  auto w = args.tensor<uint8_t>(1, 2);
  auto y = args.tensor<float>(2, 2);
  int64_t tokens = x.size[0];
  if (!args.require(x.size[1] == H && y.size[0] == tokens && y.size[1] == F, "x or y has another shape")) return;
  if (!args.require(w.size[0] == 2 * F && w.size[1] == BLOCKS * 20, "w is not [2F, H/32*20]")) return;
  run_any(args, w.data, x.data, y.data, tokens);
}
