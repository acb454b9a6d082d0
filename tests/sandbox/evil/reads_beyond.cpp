// Reads one float behind the end of x and multiplies it by zero: guard zones around outputs cannot see it.
#include "linear.h"

LINEAR_RUN {
  l.compute();
  volatile float beyond = l.x[l.T * l.K];
  l.y[0] += beyond == 12345.678f ? 1e-7f : 0.0f;
}
