// What the native kernels of add_rmsnorm here share: the arguments, and one honest row.
#pragma once
#include <kernelwright.h>
#include <math.h>
#include <string.h>

struct Norm {
  float *x, *residual, *weight, *y, *total;
  float eps;
  int64_t T, H;

  // total = residual + x of row `t`; returns the sum of its squares, in sixteen parts.
  float add_row(int64_t t) const {
    float sums[16] = {0}, all = 0;
    for (int64_t i = 0; i < H; i += 16)
      for (int64_t j = 0; j < 16; ++j) {
        const float v = residual[t * H + i + j] + x[t * H + i + j];
        total[t * H + i + j] = v;
        sums[j] += v * v;
      }
    for (int j = 0; j < 16; ++j) all += sums[j];
    return all;
  }

  void scale_row(int64_t t, float scale) const {
    for (int64_t i = 0; i < H; ++i) y[t * H + i] = total[t * H + i] * scale * weight[i];
  }

  void row(int64_t t) const { scale_row(t, 1.0f / sqrtf(add_row(t) / H + eps)); }
};

#define NORM_RUN                                                                                          \
  static void run_norm(const Norm& n);                                                                    \
  KW_RUN(args, 6) {                                                                                       \
    auto x = args.tensor<float>(0, 2);                                                                    \
    auto residual = args.tensor<float>(1, 2);                                                             \
    auto weight = args.tensor<float>(2, 1);                                                               \
    const float eps = static_cast<float>(args.number(3));                                                 \
    auto y = args.tensor<float>(4, 2);                                                                    \
    auto total = args.tensor<float>(5, 2);                                                                \
    if (!args.ok()) return;                                                                               \
    run_norm({x.data, residual.data, weight.data, y.data, total.data, eps, x.size[0], x.size[1]});        \
  }                                                                                                       \
  static void run_norm(const Norm& n)
