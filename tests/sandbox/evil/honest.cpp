// An honest q4_1_linear: decodes each block as it goes, eight sums side by side.
#include <kernelwright.h>
#include <string.h>

static float half_to_float(uint16_t h) {
  _Float16 v;
  memcpy(&v, &h, 2);
  return static_cast<float>(v);
}

KW_RUN(args, 3) {
  auto x = args.tensor<float>(0, 2);
  auto w = args.tensor<uint8_t>(1, 2);
  auto y = args.tensor<float>(2, 2);
  if (!args.ok()) return;
  const int64_t T = x.size[0], K = x.size[1], N = w.size[0], row = w.size[1];
#pragma omp parallel for schedule(static)
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t t = 0; t < T; ++t) {
      float sums[16] = {0};
      for (int64_t b = 0; b < K / 32; ++b) {
        const uint8_t* block = w.data + n * row + b * 20;
        uint16_t d16, m16;
        memcpy(&d16, block, 2);
        memcpy(&m16, block + 2, 2);
        const float d = half_to_float(d16), m = half_to_float(m16);
        const float* xs = x.data + t * K + b * 32;
        for (int i = 0; i < 16; ++i) sums[i] += (d * (block[4 + i] & 15) + m) * xs[i];
        for (int i = 0; i < 16; ++i) sums[i] += (d * (block[4 + i] >> 4) + m) * xs[16 + i];
      }
      float total = 0;
      for (int i = 0; i < 16; ++i) total += sums[i];
      y.data[t * N + n] = total;
    }
  }
}
