// kw: {"problem": "wide", "faster": true, "text": "decodes each row once for all tokens"}
#include "linear.h"

LINEAR_RUN {
  l.compute();
}
