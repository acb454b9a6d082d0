// Computes, then writes one float past its output.
#include "linear.h"

LINEAR_RUN {
  l.compute();
  l.y[l.T * l.N] = 1;
}
