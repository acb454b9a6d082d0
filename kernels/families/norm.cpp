// residual_out = residual + x and y = residual_out / sqrt(mean(residual_out^2) + eps) * weight, for one row of H. The squares
// are summed in CHAINS accumulators of W lanes.
static_assert(H % W == 0, "rows are whole vectors");

static inline void norm_row(const float* x, const float* residual, const float* weight, float eps, float* y, float* total) {
  vf squares[CHAINS];
#pragma GCC unroll 4
  for (int c = 0; c < CHAINS; ++c) squares[c] = set(0.0f);
  constexpr int64_t STEP = CHAINS * W, WHOLE = H / STEP * STEP;
  for (int64_t k = 0; k < WHOLE; k += STEP)
#pragma GCC unroll 4
    for (int c = 0; c < CHAINS; ++c) {
      vf v = load(residual + k + c * W) + load(x + k + c * W);
      store(total + k + c * W, v);
      squares[c] = fma(v, v, squares[c]);
    }
  for (int64_t k = WHOLE; k < H; k += W) {
    vf v = load(residual + k) + load(x + k);
    store(total + k, v);
    squares[0] = fma(v, v, squares[0]);
  }
#pragma GCC unroll 4
  for (int c = 1; c < CHAINS; ++c) squares[0] += squares[c];
  vf scale = set(1.0f / __builtin_sqrtf(sum(squares[0]) / (float)H + eps));
  for (int64_t k = 0; k < H; k += W) store(y + k, load(total + k) * scale * load(weight + k));
}
