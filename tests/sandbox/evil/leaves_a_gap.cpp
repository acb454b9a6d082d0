// Leaves the last element as it was.
#include "linear.h"

LINEAR_RUN {
  for (int64_t n = 0; n < l.N; ++n)
    l.each(n, [&](int64_t i, float v) {
      if (i < l.T * l.N - 1) l.y[i] = v;
    });
}
