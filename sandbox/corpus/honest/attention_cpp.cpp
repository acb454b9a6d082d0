// kw: {"problem": "attention", "faster": true, "text": "walks the pages of one head at a time"}
#include "attention.h"

ATTENTION_RUN {
  for (int64_t b = 0; b < a.B; ++b)
    for (int64_t h = 0; h < a.heads; ++h) a.head(b, h, a.lengths[b]);
}
