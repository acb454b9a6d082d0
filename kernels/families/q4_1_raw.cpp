// Q4_1 weights as they are in the file: lanes run along a row's columns, sums run across lanes at the end.

// out[r][t] = row r (at w + r * stride bytes) times x row t. w = d q + m is made in a register.
template <int R, int T>
static inline void dot(const uint8_t* const (&rows)[R], int64_t blocks, const float* x, int64_t ldx, float (&out)[R][T]) {
  constexpr int C = T == 1 ? CHAINS : 1;
  vf acc[R][T][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) acc[r][t][c] = set(0.0f);
  for (int64_t b = 0; b < blocks; ++b, x += 32) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const uint8_t* block = rows[r] + b * 20;
      if (PREFETCH > 0) __builtin_prefetch(block + PREFETCH);
      vf d = set(half(block)), m = set(half(block + 2));
#pragma GCC unroll 4
      for (int k = 0; k < 16; k += W) {
        vi pair = bytes(block + 4 + k);
        vf low = fma(to_float(pair & 15), d, m), high = fma(to_float(shift_right(pair, 4)), d, m);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          acc[r][t][0] = fma(low, load(x + t * ldx + k), acc[r][t][0]);
          acc[r][t][C - 1] = fma(high, load(x + t * ldx + 16 + k), acc[r][t][C - 1]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) out[r][t] = sum(C == 1 ? acc[r][t][0] : acc[r][t][0] + acc[r][t][C - 1]);
}
