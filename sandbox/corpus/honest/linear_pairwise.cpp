// kw: {"problem": "linear", "faster": true, "text": "adds block sums pairwise: another order, as right"}
#include "linear.h"

static float pairwise(const float* a, const float* b, int64_t k) {
  if (k <= 128) return dot(a, b, k);
  const int64_t half = k / 256 * 128;
  return pairwise(a, b, half) + pairwise(a + half, b + half, k - half);
}

LINEAR_RUN {
  for (int64_t n = 0; n < l.N; ++n) {
    float dense[4096];
    decode_row(l.w + n * l.row, l.K, dense);
    for (int64_t t = 0; t < l.T; ++t) l.y[t * l.N + n] = pairwise(l.x + t * l.K, dense, l.K);
  }
}
