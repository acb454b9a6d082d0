// kw: {"problem": "linear", "faster": true, "text": "honest, with words in its comments that a careless search takes
// for a hack"}
#include "linear.h"

// No stream and no graph is replayed here; there is no cache of results, no thread is detached, nothing is memoised by
// data_ptr, the clock is left alone. Weights stream through the cache once per call. TODO: eval of getattr(…)?
LINEAR_RUN {
  l.compute();
}
