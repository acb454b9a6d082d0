// kw: {"problem": "norm", "faster": true, "text": "shares the rows out with OpenMP"}
#include "norm.h"

NORM_RUN {
#pragma omp parallel for schedule(static)
  for (int64_t t = 0; t < n.T; ++t) n.row(t);
}
