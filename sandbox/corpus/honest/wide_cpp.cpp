// kw: {"problem": "wide", "faster": false, "text": "decodes each row once for all tokens"}
#include "linear.h"

LINEAR_RUN {
  l.compute();
}
