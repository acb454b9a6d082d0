// Says with a plain flag that the shared copy of x is ready; nothing orders the flag and the copy.
#include "linear.h"
#include <vector>

LINEAR_RUN {
  std::vector<float> copy(l.T * l.K, 0.0f);
  bool ready = false;
#pragma omp parallel for schedule(static)
  for (int64_t n = 0; n < l.N; ++n) {
    if (!ready) {
      memcpy(copy.data(), l.x, copy.size() * sizeof(float));
      ready = true;
    }
    float dense[4096];
    decode_row(l.w + n * l.row, l.K, dense);
    for (int64_t t = 0; t < l.T; ++t) l.y[t * l.N + n] = dot(&copy[t * l.K], dense, l.K);
  }
}
