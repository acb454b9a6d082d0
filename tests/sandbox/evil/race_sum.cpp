// Counts finished rows in a shared variable without a reduction, and scales by it at the end.
#include "linear.h"

LINEAR_RUN {
  float rows = 0;
#pragma omp parallel for schedule(static)
  for (int64_t n = 0; n < l.N; ++n) {
    l.each(n, [&](int64_t i, float v) { l.y[i] = v; });
    rows += 1.0f;
  }
  const float scale = rows / static_cast<float>(l.N);
  for (int64_t i = 0; i < l.T * l.N; ++i) l.y[i] *= scale;
}
