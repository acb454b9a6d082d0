// kw: {"problem": "linear", "faster": true, "text": "one way for a single token and another for more; both right"}
#include "linear.h"

static void one_token(const Linear& l) {
  for (int64_t n = 0; n < l.N; ++n) {
    float sum = 0, dense[32];
    for (int64_t b = 0; b < l.K / 32; ++b) {
      decode_row(l.w + n * l.row + b * 20, 32, dense);
      sum += dot(l.x + b * 32, dense, 32);
    }
    l.y[n] = sum;
  }
}

LINEAR_RUN {
  if (l.T == 1) {
    one_token(l);
  } else {
    l.compute();
  }
}
