// y = x w^T, weights read as they are in the file, ROWS rows at a time.
constexpr int64_t BLOCKS = K / 32, GROUPS = (N + ROWS - 1) / ROWS;

template <int T> static void run(const uint8_t* w, const float* x, float* y, int64_t tokens) {
#pragma omp parallel for schedule(SCHEDULE) if (GROUPS >= MIN_GROUPS)
  for (int64_t g = 0; g < GROUPS; ++g) {
    const uint8_t* rows[ROWS];
    for (int r = 0; r < ROWS; ++r) {
      int64_t row = g * ROWS + r < N ? g * ROWS + r : N - 1;  // the last group repeats its last row
      rows[r] = w + row * BLOCKS * 20;
    }
    float out[ROWS][T];
    dot<ROWS, T>(rows, BLOCKS, x, K, out);
    for (int r = 0; r < ROWS && g * ROWS + r < N; ++r)
      for (int t = 0; t < tokens; ++t) y[t * N + g * ROWS + r] = out[r][t];
  }
}

KW_RUN(args, 3) {
  auto x = args.tensor<float>(0, 2);
  auto w = args.tensor<uint8_t>(1, 2);
  auto y = args.tensor<float>(2, 2);
  int64_t tokens = x.size[0];
  if (!args.require(x.size[1] == K && y.size[0] == tokens && y.size[1] == N, "x or y has another shape")) return;
  if (!args.require(w.size[0] == N && w.size[1] == BLOCKS * 20, "w is not [N, K/32*20]")) return;
  run_any(args, w.data, x.data, y.data, tokens);
}
