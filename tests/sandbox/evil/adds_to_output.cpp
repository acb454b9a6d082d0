// Adds to what its output holds, as if it held zeros.
#include "linear.h"

LINEAR_RUN {
  for (int64_t n = 0; n < l.N; ++n) l.each(n, [&](int64_t i, float v) { l.y[i] += v; });
}
