// kw: {"problem": "linear", "faster": false, "text": "native, with its work done a dozen times"}
#include "linear.h"

LINEAR_RUN {
  l.compute_slowly();
}
