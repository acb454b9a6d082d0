// kw: {"problem": "norm", "faster": true, "text": "sums the squares of a row with an OpenMP SIMD reduction"}
#include "norm.h"

NORM_RUN {
  for (int64_t t = 0; t < n.T; ++t) {
    float sum = 0;
    const float *x = n.x + t * n.H, *residual = n.residual + t * n.H;
    float* total = n.total + t * n.H;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n.H; ++i) {
      total[i] = residual[i] + x[i];
      sum += total[i] * total[i];
    }
    n.scale_row(t, 1.0f / sqrtf(sum / n.H + n.eps));
  }
}
