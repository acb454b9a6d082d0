// Decodes the weights together, then multiplies; no barrier keeps a row from being used before it is there.
#include "linear.h"
#include <vector>

LINEAR_RUN {
  std::vector<float> dense(l.N * l.K);
#pragma omp parallel
  {
#pragma omp for schedule(static) nowait
    for (int64_t n = 0; n < l.N; ++n) decode_row(l.w + n * l.row, l.K, &dense[n * l.K]);
#pragma omp for schedule(dynamic, 4)
    for (int64_t n = 0; n < l.N; ++n)
      for (int64_t t = 0; t < l.T; ++t) l.y[t * l.N + n] = dot(l.x + t * l.K, &dense[n * l.K], l.K);
  }
}
