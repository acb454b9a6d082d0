// kw: {"problem": "linear", "faster": true, "text": "adds block sums in double precision"}
#include "linear.h"

LINEAR_RUN {
  for (int64_t n = 0; n < l.N; ++n) {
    float dense[4096];
    decode_row(l.w + n * l.row, l.K, dense);
    for (int64_t t = 0; t < l.T; ++t) {
      double sum = 0;
      for (int64_t k = 0; k < l.K; k += 32) sum += dot(l.x + t * l.K + k, dense + k, 32);
      l.y[t * l.N + n] = static_cast<float>(sum);
    }
  }
}
