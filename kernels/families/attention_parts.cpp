// Attention of one query token over part of a paged cache, for the GROUP query heads that share a cache head. Softmax is
// taken online, CHUNK tokens at a time (Milakov and Gimelshein 2018); parts of a context are joined by their maxima and sums.
constexpr int64_t GROUP = HQ / HKV, VECTORS = D / W, PART = D + 2;
static_assert(D % W == 0 && CHUNK % PAGE == 0 && CHUNK % W == 0, "heads and chunks are whole vectors");

// A part's state, in memory: the sum of exp(score - maximum) v [D], then the maximum, then the sum of exp(score - maximum).
static inline void attend_chunk(const float* q, const float* const* k, const float* const* v, int64_t count, float* part) {
  alignas(64) float scores[GROUP][CHUNK];
  float maximum[GROUP];
  for (int64_t g = 0; g < GROUP; ++g) maximum[g] = part[g * PART + D];
  for (int64_t s = 0; s < count; ++s)
#pragma GCC unroll 8
    for (int64_t g = 0; g < GROUP; ++g) {
      vf dot = set(0.0f), other = set(0.0f);
#pragma GCC unroll 8
      for (int64_t d = 0; d < VECTORS; d += 2) {
        dot = fma(load(q + g * D + d * W), load(k[s] + d * W), dot);
        if (d + 1 < VECTORS) other = fma(load(q + g * D + (d + 1) * W), load(k[s] + (d + 1) * W), other);
      }
      float score = sum(dot + other);
      scores[g][s] = score;
      maximum[g] = score > maximum[g] ? score : maximum[g];
    }
  for (int64_t g = 0; g < GROUP; ++g) {
    for (int64_t s = count; s < CHUNK; ++s) scores[g][s] = -__builtin_inff();
    vf total = set(0.0f);
    for (int64_t s = 0; s < CHUNK; s += W) {
      vf e = exp(load(&scores[g][s]) - set(maximum[g]));
      store(&scores[g][s], e);
      total += e;
    }
    float* mine = part + g * PART;
    vf keep = exp(set(mine[D] - maximum[g]));  // 0 for the first chunk, whose maximum is -inf
    vf acc[VECTORS];
#pragma GCC unroll 16
    for (int64_t d = 0; d < VECTORS; ++d) acc[d] = load(mine + d * W) * keep;
    for (int64_t s = 0; s < count; ++s) {
      vf p = set(scores[g][s]);
#pragma GCC unroll 16
      for (int64_t d = 0; d < VECTORS; ++d) acc[d] = fma(p, load(v[s] + d * W), acc[d]);
    }
#pragma GCC unroll 16
    for (int64_t d = 0; d < VECTORS; ++d) store(mine + d * W, acc[d]);
    mine[D + 1] = mine[D + 1] * keep[0] + sum(total);
    mine[D] = maximum[g];
  }
}

// Tokens first..last-1 of one sequence at cache head `head`; q holds the group's heads, scaled. part [GROUP][PART].
static void attend(const float* q, const float* k_cache, const float* v_cache, const int32_t* pages, int64_t head,
                   int64_t first, int64_t last, float* part) {
  for (int64_t g = 0; g < GROUP; ++g) {
    memset(part + g * PART, 0, PART * sizeof(float));
    part[g * PART + D] = -__builtin_inff();
  }
  const float *k[CHUNK], *v[CHUNK];
  for (int64_t start = first; start < last; start += CHUNK) {
    int64_t count = last - start < CHUNK ? last - start : CHUNK;
    for (int64_t s = 0; s < count; ++s) {
      int64_t at = ((pages[(start + s) / PAGE] * PAGE + (start + s) % PAGE) * HKV + head) * D;
      k[s] = k_cache + at;
      v[s] = v_cache + at;
    }
    attend_chunk(q, k, v, count, part);
  }
}

// Join `parts` parts, `stride` floats apart, into o [D].
static inline void join(const float* part, int64_t parts, int64_t stride, float* o) {
  float maximum = -__builtin_inff(), total = 0.0f;
  for (int64_t s = 0; s < parts; ++s)
    if (part[s * stride + D] > maximum) maximum = part[s * stride + D];
  vf acc[VECTORS];
#pragma GCC unroll 16
  for (int64_t d = 0; d < VECTORS; ++d) acc[d] = set(0.0f);
  for (int64_t s = 0; s < parts; ++s) {
    float keep = exp1(part[s * stride + D] - maximum);
    total += keep * part[s * stride + D + 1];
#pragma GCC unroll 16
    for (int64_t d = 0; d < VECTORS; ++d) acc[d] = fma(load(part + s * stride + d * W), set(keep), acc[d]);
  }
#pragma GCC unroll 16
  for (int64_t d = 0; d < VECTORS; ++d) store(o + d * W, acc[d] / set(total));
}

// How many parts the longest context is cut into: SPLIT tokens each, or one part when SPLIT is 0.
static inline int64_t parts_of(int64_t tokens) { return SPLIT == 0 ? 1 : (tokens + SPLIT - 1) / SPLIT; }

// Memory that grows and stays, one per calling thread.
static float* scratch(size_t floats) {
  static thread_local float* memory = nullptr;
  static thread_local size_t room = 0;
  if (floats > room) {
    free(memory);
    memory = static_cast<float*>(aligned_alloc(64, (floats * sizeof(float) + 63) / 64 * 64));
    room = memory == nullptr ? 0 : floats;
  }
  return memory;
}
