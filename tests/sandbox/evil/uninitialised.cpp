// Adds up scratch that it never wrote.
#include "linear.h"
#include <stdlib.h>

LINEAR_RUN {
  l.compute();
  float* scratch = static_cast<float*>(malloc(4096));
  float sum = 0;
  for (int i = 0; i < 1024; ++i) sum += reinterpret_cast<volatile uint8_t*>(scratch)[i] == 0 ? 0.0f : 1.0f;
  l.y[0] += sum;
  free(scratch);
}
