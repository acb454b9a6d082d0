// kw: {"problem": "linear", "faster": true, "text": "OpenMP with a dynamic schedule, eight rows at a time"}
#include "linear.h"

LINEAR_RUN {
#pragma omp parallel for schedule(dynamic, 8)
  for (int64_t n = 0; n < l.N; ++n) l.each(n, [&](int64_t i, float v) { l.y[i] = v; });
}
