// What the native kernels of decode_attention here share: the arguments, and one honest head.
#pragma once
#include <kernelwright.h>
#include <math.h>

struct Attention {
  const float *q, *k_cache, *v_cache;
  const int32_t *table, *lengths;
  float* o;
  int64_t B, heads, kv, D, blocks;

  const float* at(const float* cache, int64_t b, int64_t token, int64_t h) const {
    const int64_t slot = table[b * blocks + token / 16] * 16 + token % 16;
    return cache + (slot * kv + h / (heads / kv)) * D;
  }

  static float dot(const float* a, const float* b, int64_t D) {
    float sums[16] = {0}, total = 0;
    for (int64_t d = 0; d < D; d += 16)
      for (int j = 0; j < 16; ++j) sums[j] += a[d + j] * b[d + j];
    for (int j = 0; j < 16; ++j) total += sums[j];
    return total;
  }

  void head(int64_t b, int64_t h, int64_t tokens) const {
    float scores[4096];
    const float* query = q + (b * heads + h) * D;
    float most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < tokens; ++i) {
      scores[i] = dot(query, at(k_cache, b, i, h), D) / sqrtf(static_cast<float>(D));
      most = fmaxf(most, scores[i]);
    }
    for (int64_t i = 0; i < tokens; ++i) sum += scores[i] = expf(scores[i] - most);
    float mean[256] = {0};
    for (int64_t i = 0; i < tokens; ++i) {
      const float* value = at(v_cache, b, i, h);
      for (int64_t d = 0; d < D; ++d) mean[d] += scores[i] * value[d];
    }
    for (int64_t d = 0; d < D; ++d) o[(b * heads + h) * D + d] = mean[d] / sum;
  }
};

#define ATTENTION_RUN                                                                                     \
  static void run_attention(const Attention& a);                                                          \
  KW_RUN(args, 6) {                                                                                       \
    auto q = args.tensor<float>(0, 3);                                                                    \
    auto k = args.tensor<float>(1, 4);                                                                    \
    auto v = args.tensor<float>(2, 4);                                                                    \
    auto table = args.tensor<int32_t>(3, 2);                                                              \
    auto lengths = args.tensor<int32_t>(4, 1);                                                            \
    auto o = args.tensor<float>(5, 3);                                                                    \
    if (!args.ok()) return;                                                                               \
    run_attention({q.data, k.data, v.data, table.data, lengths.data, o.data, q.size[0], q.size[1],        \
                   k.size[2], k.size[3], table.size[1]});                                                 \
  }                                                                                                       \
  static void run_attention(const Attention& a)
