// kw: {"problem": "linear", "faster": true, "text": "remembers per shape how it will share out its rows, and nothing
// else"}
#include "linear.h"

// A plan holds block sizes for a shape; no value of an input or output is kept.
struct Plan {
  int64_t tokens, rows;
};
static Plan plans[16];

LINEAR_RUN {
  Plan& plan = plans[l.T % 16];
  if (plan.tokens != l.T) plan = {l.T, l.T > 2 ? 8 : 16};
  for (int64_t n0 = 0; n0 < l.N; n0 += plan.rows)
    for (int64_t n = n0; n < l.N && n < n0 + plan.rows; ++n) l.each(n, [&](int64_t i, float v) { l.y[i] = v; });
}
