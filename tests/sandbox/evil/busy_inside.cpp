// Does all of its work three times at once, on threads that it was not given.
#include "linear.h"

LINEAR_RUN {
#pragma omp parallel num_threads(3)
  for (int64_t n = 0; n < l.N; ++n) {
    float dense[4096], spare[4096];
    decode_row(l.w + n * l.row, l.K, dense);
    for (int64_t t = 0; t < l.T; ++t) spare[t] = dot(l.x + t * l.K, dense, l.K);
#pragma omp master
    for (int64_t t = 0; t < l.T; ++t) l.y[t * l.N + n] = spare[t];
  }
}
