// Q8_0 weights as they are in the file, ROWS rows at a time; lanes run along a row, sums across lanes at the end.
constexpr int64_t BLOCKS = K / 32, GROUPS = (N + ROWS - 1) / ROWS;

// out[r][t] = row r times x row t. Each block is summed before its scale is applied: d q is exact.
template <int R, int T>
static inline void dot(const uint8_t* const (&rows)[R], const float* x, float (&out)[R][T]) {
  constexpr int C = T == 1 ? CHAINS : 1;
  vf acc[R][T];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) acc[r][t] = set(0.0f);
  for (int64_t b = 0; b < BLOCKS; ++b, x += 32) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const uint8_t* block = rows[r] + b * 34;
      if (PREFETCH > 0) __builtin_prefetch(block + PREFETCH);
      vf part[T][C];
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) part[t][c] = set(0.0f);
#pragma GCC unroll 8
      for (int k = 0; k < 32; k += W) {
        vf q = to_float(signed_bytes(block + 2 + k));
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) part[t][k / W % C] = fma(q, load(x + t * K + k), part[t][k / W % C]);
      }
      vf d = set(half(block));
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
        for (int c = 1; c < C; ++c) part[t][0] += part[t][c];
        acc[r][t] = fma(part[t][0], d, acc[r][t]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) out[r][t] = sum(acc[r][t]);
}

template <int T> static void run(const uint8_t* w, const float* x, float* y, int64_t tokens) {
#pragma omp parallel for schedule(SCHEDULE) if (GROUPS >= MIN_GROUPS)
  for (int64_t g = 0; g < GROUPS; ++g) {
    const uint8_t* rows[ROWS];
    for (int r = 0; r < ROWS; ++r) {
      int64_t row = g * ROWS + r < N ? g * ROWS + r : N - 1;  // the last group repeats its last row
      rows[r] = w + row * BLOCKS * 34;
    }
    float out[ROWS][T];
    dot<ROWS, T>(rows, x, out);
    for (int r = 0; r < ROWS && g * ROWS + r < N; ++r)
      for (int t = 0; t < tokens; ++t) y[t * N + g * ROWS + r] = out[r][t];
  }
}
