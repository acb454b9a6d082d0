// kw: {"problem": "mlp", "faster": true, "text": "gate, up and silu in one pass over the rows"}
#include "mlp.h"

MLP_RUN {
  m.compute();
}
