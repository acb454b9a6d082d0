// Rotate one head of D in half-split form: (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin), times `scale`.
static inline void rotate(const float* in, const float* cos, const float* sin, float scale, float* out) {
  constexpr int64_t HALF = D / 2;
  static_assert(HALF % W == 0, "half a head is whole vectors");
#pragma GCC unroll 8
  for (int64_t k = 0; k < HALF; k += W) {
    vf x1 = load(in + k), x2 = load(in + HALF + k), c = load(cos + k), s = load(sin + k);
    store(out + k, (x1 * c - x2 * s) * set(scale));
    store(out + HALF + k, (x2 * c + x1 * s) * set(scale));
  }
}
