// Rotate q and k of each token, return q, write k and v to their slots. Tokens (BY_HEAD 0) or single heads (1) are shared
// between threads from THREADS_FROM tokens on.
constexpr int64_t HEADS = HQ + 2 * HKV, QKV = HEADS * D;

struct Call {
  const float *qkv, *cos, *sin;
  const int64_t *positions, *slots;
  float *k_cache, *v_cache, *q;
};

static inline void head(const Call& c, int64_t t, int64_t h) {
  const float* in = c.qkv + t * QKV + h * D;
  const float *cos = c.cos + c.positions[t] * (D / 2), *sin = c.sin + c.positions[t] * (D / 2);
  if (h < HQ) {
    rotate(in, cos, sin, 1.0f, c.q + (t * HQ + h) * D);
  } else if (h < HQ + HKV) {
    rotate(in, cos, sin, 1.0f, c.k_cache + (c.slots[t] * HKV + h - HQ) * D);
  } else {
    memcpy(c.v_cache + (c.slots[t] * HKV + h - HQ - HKV) * D, in, D * sizeof(float));
  }
}

static void run(const Call& c, int64_t tokens) {
  if (tokens < THREADS_FROM) {
    for (int64_t i = 0; i < tokens * HEADS; ++i) head(c, i / HEADS, i % HEADS);
  } else if (BY_HEAD) {
#pragma omp parallel for schedule(SCHEDULE)
    for (int64_t i = 0; i < tokens * HEADS; ++i) head(c, i / HEADS, i % HEADS);
  } else {
#pragma omp parallel for schedule(SCHEDULE)
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t h = 0; h < HEADS; ++h) head(c, t, h);
  }
}

KW_RUN(args, 8) {
  auto qkv = args.tensor<float>(0, 2);
  auto cos = args.tensor<float>(1, 2);
  auto sin = args.tensor<float>(2, 2);
  auto positions = args.tensor<int64_t>(3, 1);
  auto slots = args.tensor<int64_t>(4, 1);
  auto k_cache = args.tensor<float>(5, 4);
  auto v_cache = args.tensor<float>(6, 4);
  auto q = args.tensor<float>(7, 3);
  int64_t tokens = qkv.size[0], room = k_cache.size[0] * PAGE;
  bool shapes = qkv.size[1] == QKV && cos.size[1] == D / 2 && sin.size[1] == D / 2 && sin.size[0] == cos.size[0] &&
                positions.size[0] == tokens && slots.size[0] == tokens && q.size[0] == tokens && q.size[1] == HQ &&
                q.size[2] == D;
  bool caches = k_cache.size[1] == PAGE && k_cache.size[2] == HKV && k_cache.size[3] == D && v_cache.size[1] == PAGE &&
                v_cache.size[0] == k_cache.size[0] && v_cache.size[2] == HKV && v_cache.size[3] == D;
  if (!args.require(shapes && caches, "the tensors do not agree in shape")) return;
  for (int64_t t = 0; t < tokens; ++t)
    if (!args.require(positions.data[t] >= 0 && positions.data[t] < cos.size[0], "a position is out of range") ||
        !args.require(slots.data[t] >= 0 && slots.data[t] < room, "a slot is out of range"))
      return;
  run({qkv.data, cos.data, sin.data, positions.data, slots.data, k_cache.data, v_cache.data, q.data}, tokens);
}
