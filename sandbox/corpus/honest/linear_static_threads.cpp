// kw: {"problem": "linear", "faster": true, "text": "OpenMP with a static schedule"}
#include "linear.h"

LINEAR_RUN {
#pragma omp parallel for schedule(static)
  for (int64_t n = 0; n < l.N; ++n) l.each(n, [&](int64_t i, float v) { l.y[i] = v; });
}
