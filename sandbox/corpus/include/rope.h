// What the native kernels of rope_cache here share: the arguments, and one honest head.
#pragma once
#include <kernelwright.h>
#include <string.h>

struct Rope {
  const float *qkv, *cos, *sin;
  const int64_t *positions, *slots;
  float *k_cache, *v_cache, *q;
  int64_t T, heads, kv, D, pages;

  const float* in(int64_t t, int64_t h) const { return qkv + (t * (heads + 2 * kv) + h) * D; }
  float* k_at(int64_t t, int64_t h) const { return k_cache + (slots[t] * kv + h) * D; }
  float* v_at(int64_t t, int64_t h) const { return v_cache + (slots[t] * kv + h) * D; }

  void rotate(const float* from, int64_t position, float* to) const {
    const float *c = cos + position * (D / 2), *s = sin + position * (D / 2);
    for (int64_t i = 0; i < D / 2; ++i) {
      to[i] = from[i] * c[i] - from[i + D / 2] * s[i];
      to[i + D / 2] = from[i + D / 2] * c[i] + from[i] * s[i];
    }
  }

  void token(int64_t t) const {
    for (int64_t h = 0; h < heads; ++h) rotate(in(t, h), positions[t], q + (t * heads + h) * D);
    for (int64_t h = 0; h < kv; ++h) {
      rotate(in(t, heads + h), positions[t], k_at(t, h));
      memcpy(v_at(t, h), in(t, heads + kv + h), D * sizeof(float));
    }
  }
};

#define ROPE_RUN                                                                                          \
  static void run_rope(const Rope& r);                                                                    \
  KW_RUN(args, 8) {                                                                                       \
    auto qkv = args.tensor<float>(0, 2);                                                                  \
    auto cos = args.tensor<float>(1, 2);                                                                  \
    auto sin = args.tensor<float>(2, 2);                                                                  \
    auto positions = args.tensor<int64_t>(3, 1);                                                          \
    auto slots = args.tensor<int64_t>(4, 1);                                                              \
    auto k = args.tensor<float>(5, 4);                                                                    \
    auto v = args.tensor<float>(6, 4);                                                                    \
    auto q = args.tensor<float>(7, 3);                                                                    \
    if (!args.ok()) return;                                                                               \
    run_rope({qkv.data, cos.data, sin.data, positions.data, slots.data, k.data, v.data, q.data,           \
              qkv.size[0], q.size[1], k.size[2], k.size[3], k.size[0]});                                  \
  }                                                                                                       \
  static void run_rope(const Rope& r)
