// What the native kernels of q4_1_gate_up_silu here share: the arguments, and the honest arithmetic.
#pragma once
#include <math.h>

#include "linear.h"

struct Mlp {
  float* x;
  const uint8_t* w;
  float* y;
  int64_t T, H, F, row;

  // `mask` is laid over the bits of x: all ones is exact.
  void compute(uint32_t mask = 0xffffffffu) const {
    float rounded[4096], gate[4096], up[4096];
    for (int64_t f = 0; f < F; ++f) {
      decode_row(w + f * row, H, gate);
      decode_row(w + (F + f) * row, H, up);
      for (int64_t t = 0; t < T; ++t) {
        const float* in = x + t * H;
        if (mask != 0xffffffffu) {
          for (int64_t i = 0; i < H; ++i) {
            uint32_t bits;
            memcpy(&bits, in + i, 4);
            bits &= mask;
            memcpy(rounded + i, &bits, 4);
          }
          in = rounded;
        }
        const float g = dot(in, gate, H);
        y[t * F + f] = g / (1 + expf(-g)) * dot(in, up, H);
      }
    }
  }
};

#define MLP_RUN                                                                                           \
  static void run_mlp(const Mlp& m);                                                                      \
  KW_RUN(args, 3) {                                                                                       \
    auto x = args.tensor<float>(0, 2);                                                                    \
    auto w = args.tensor<uint8_t>(1, 2);                                                                  \
    auto y = args.tensor<float>(2, 2);                                                                    \
    if (!args.ok()) return;                                                                               \
    run_mlp({x.data, w.data, y.data, x.size[0], x.size[1], w.size[0] / 2, w.size[1]});                    \
  }                                                                                                       \
  static void run_mlp(const Mlp& m)
