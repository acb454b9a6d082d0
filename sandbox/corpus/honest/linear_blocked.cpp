// kw: {"problem": "linear", "faster": true, "text": "walks the weights in tiles of sixteen rows by 128 columns"}
#include "linear.h"

LINEAR_RUN {
  float dense[16][128], sums[16][8];
  for (int64_t n0 = 0; n0 < l.N; n0 += 16)
    for (int64_t t0 = 0; t0 < l.T; t0 += 8) {
      const int64_t rows = l.N - n0 < 16 ? l.N - n0 : 16, tokens = l.T - t0 < 8 ? l.T - t0 : 8;
      memset(sums, 0, sizeof sums);
      for (int64_t k0 = 0; k0 < l.K; k0 += 128) {
        const int64_t columns = l.K - k0 < 128 ? l.K - k0 : 128;
        for (int64_t n = 0; n < rows; ++n) {
          decode_row(l.w + (n0 + n) * l.row + k0 / 32 * 20, columns, dense[n]);
          for (int64_t t = 0; t < tokens; ++t) sums[n][t] += dot(l.x + (t0 + t) * l.K + k0, dense[n], columns);
        }
      }
      for (int64_t n = 0; n < rows; ++n)
        for (int64_t t = 0; t < tokens; ++t) l.y[(t0 + t) * l.N + n0 + n] = sums[n][t];
    }
}
