// kw: {"problem": "linear", "faster": true, "text": "keeps its workspace between calls and fills it anew in each"}
#include "linear.h"
#include <stdlib.h>

// The workspace of a thread is made once: what it holds never outlives a call.
static thread_local float* workspace;
static thread_local int64_t room;

LINEAR_RUN {
  if (room < l.N * l.K) {
    free(workspace);
    workspace = static_cast<float*>(aligned_alloc(64, (l.N * l.K * sizeof(float) + 63) / 64 * 64));
    room = l.N * l.K;
  }
  for (int64_t n = 0; n < l.N; ++n) decode_row(l.w + n * l.row, l.K, workspace + n * l.K);
  for (int64_t n = 0; n < l.N; ++n)
    for (int64_t t = 0; t < l.T; ++t) l.y[t * l.N + n] = dot(l.x + t * l.K, workspace + n * l.K, l.K);
}
