// Adds up in another order at every other call: right each time, and never the same bits twice.
#include "linear.h"

static int calls = 0;

static float dot_backwards(const float* a, const float* b, int64_t K) {
  float sums[16] = {0}, total = 0;
  for (int64_t k = K - 16; k >= 0; k -= 16)
    for (int i = 0; i < 16; ++i) sums[i] += a[k + i] * b[k + i];
  for (int i = 15; i >= 0; --i) total += sums[i];
  return total;
}

LINEAR_RUN {
  const bool backwards = ++calls % 2;
  for (int64_t n = 0; n < l.N; ++n) {
    float dense[4096];
    decode_row(l.w + n * l.row, l.K, dense);
    for (int64_t t = 0; t < l.T; ++t)
      l.y[t * l.N + n] = backwards ? dot_backwards(l.x + t * l.K, dense, l.K) : dot(l.x + t * l.K, dense, l.K);
  }
}
