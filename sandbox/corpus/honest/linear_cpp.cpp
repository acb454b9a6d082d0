// kw: {"problem": "linear", "faster": true, "fast": true, "text": "decodes each row once, sixteen sums side by side"}
#include "linear.h"

LINEAR_RUN {
  l.compute();
}
