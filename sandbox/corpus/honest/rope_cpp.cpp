// kw: {"problem": "cache", "faster": true, "text": "writes into the cache in place instead of copying it"}
#include "rope.h"

ROPE_RUN {
  for (int64_t t = 0; t < r.T; ++t) r.token(t);
}
