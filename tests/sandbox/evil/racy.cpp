// Adds partial sums over blocks of K from several threads without a lock.
#include "linear.h"

LINEAR_RUN {
  memset(l.y, 0, sizeof(float) * l.T * l.N);
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t part = 0; part < l.K / 32; ++part) {
    for (int64_t n = 0; n < l.N; ++n) {
      float dense[32];
      decode_row(l.w + n * l.row + part * 20, 32, dense);
      for (int64_t t = 0; t < l.T; ++t) l.y[t * l.N + n] += dot(l.x + t * l.K + part * 32, dense, 32);
    }
  }
}
