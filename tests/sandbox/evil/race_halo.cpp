// Each thread computes its rows, but takes the first row of the next thread's part (its halo) from what that one wrote.
#include "linear.h"
#include <omp.h>

LINEAR_RUN {
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
    const int64_t first = l.N * me / threads, last = l.N * (me + 1) / threads;
    for (int64_t n = first; n < last; ++n) l.each(n, [&](int64_t i, float v) { l.y[i] = v; });
    if (last < l.N)  // an edge that is added and taken off again: right only when the neighbour has been there
      for (int64_t t = 0; t < l.T; ++t) {
        const float halo = l.y[t * l.N + last];
        l.y[t * l.N + last - 1] += halo != halo ? 1.0f : 0.0f;
      }
  }
}
