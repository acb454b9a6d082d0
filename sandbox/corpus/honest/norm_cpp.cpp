// kw: {"problem": "norm", "faster": true, "fast": true, "text": "one pass that adds and sums, one that scales"}
#include "norm.h"

NORM_RUN {
  for (int64_t t = 0; t < n.T; ++t) n.row(t);
}
