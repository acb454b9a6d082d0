// One parallel region for decode attention: every thread norms all rows by itself; qkv rows are shared; heads are rotated
// and cached; parts of contexts are attended; every thread joins the parts by itself; output rows are shared.
constexpr int64_t HEADS = HQ + 2 * HKV, QKV = HEADS * D, O = HQ * D, H_BLOCKS = H / 32, O_BLOCKS = O / 32;
constexpr int64_t QKV_GROUPS = (QKV + TILES * W - 1) / (TILES * W), O_GROUPS = (H + TILES * W - 1) / (TILES * W);
constexpr int64_t QKV_BYTES = TILES * H_BLOCKS * TILE_BLOCK, O_BYTES = TILES * O_BLOCKS * TILE_BLOCK;

KW_PREPARE(args, 7) {
  auto w_qkv = args.tensor<uint8_t>(1, 2);
  auto w_o = args.tensor<uint8_t>(4, 2);
  auto qkv = args.tensor<uint8_t>(5, 1);
  auto o = args.tensor<uint8_t>(6, 1);
  bool shapes = w_qkv.size[0] == QKV && w_qkv.size[1] == H_BLOCKS * 20 && w_o.size[0] == H && w_o.size[1] == O_BLOCKS * 20;
  if (!args.require(shapes, "the weights have another shape")) return;
  if (!args.require(qkv.size[0] == QKV_GROUPS * QKV_BYTES && o.size[0] == O_GROUPS * O_BYTES, "packed size")) return;
  for (int64_t row = 0; row < QKV; ++row)
    pack_row(w_qkv.data + row * H_BLOCKS * 20, H_BLOCKS, qkv.data + row / W / TILES * QKV_BYTES, row / W % TILES, row % W);
  for (int64_t row = 0; row < H; ++row)
    pack_row(w_o.data + row * O_BLOCKS * 20, O_BLOCKS, o.data + row / W / TILES * O_BYTES, row / W % TILES, row % W);
}

struct Call {
  const float *x, *residual, *weight, *cos, *sin;
  const int64_t *positions, *slots;
  float *k_cache, *v_cache;
  const int32_t *table, *contexts;
  const uint8_t *w_qkv, *w_o;
  float *y, *total, *memory;
  float eps;
  int64_t batch, blocks, parts, longest;
};

// out [T, rows] = a group of rows times x [T, columns].
template <int T>
static inline void project(const uint8_t* group, int64_t g, int64_t blocks, const float* x, int64_t rows, int64_t batch,
                           float* out) {
  constexpr int U = T == 1 ? TILES : T == 2 && TILES >= 2 ? 2 : 1;  // accumulators must stay in registers
  for (int first = 0; first < TILES; first += U) {
    vf sums[U][T];
    dot<U, T>(group, first, blocks, x, blocks * 32, sums);
    for (int u = 0; u < U; ++u) {
      int64_t row = (g * TILES + first + u) * W;
      for (int64_t t = 0; t < batch && row < rows; ++t) store_rows(out + t * rows + row, sums[u][t], rows - row);
    }
  }
}

// Rotate q (and scale it for attention) and k, copy v to the cache; one head of one sequence.
static inline void place(const Call& c, int64_t b, int64_t h, float* qkv) {
  float* in = qkv + b * QKV + h * D;
  const float *cos = c.cos + c.positions[b] * (D / 2), *sin = c.sin + c.positions[b] * (D / 2);
  if (h < HQ) {
    rotate(in, cos, sin, 1.0f / __builtin_sqrtf((float)D), in);
  } else if (h < HQ + HKV) {
    rotate(in, cos, sin, 1.0f, c.k_cache + (c.slots[b] * HKV + h - HQ) * D);
  } else {
    memcpy(c.v_cache + (c.slots[b] * HKV + h - HQ - HKV) * D, in, D * sizeof(float));
  }
}

static inline void attend_item(const Call& c, int64_t item, const float* qkv) {
  int64_t b = item / c.parts / HKV, head = item / c.parts % HKV, first = item % c.parts * (SPLIT == 0 ? c.longest : SPLIT);
  int64_t context = c.contexts[b], last = SPLIT == 0 || first + SPLIT > context ? context : first + SPLIT;
  attend(qkv + b * QKV + head * GROUP * D, c.k_cache, c.v_cache, c.table + b * c.blocks, head, first, last,
         c.memory + item * GROUP * PART);
}

template <int T> static void run(const Call& c) {
  alignas(64) float qkv[T * QKV];
  const int64_t items = c.batch * HKV * c.parts;
#pragma omp parallel
  {
    alignas(64) float normed[T * H], mine[H], joined[T * O];
    for (int64_t b = 0; b < c.batch; ++b)
      norm_row(c.x + b * H, c.residual + b * H, c.weight, c.eps, normed + b * H,
               omp_get_thread_num() == 0 ? c.total + b * H : mine);
    memset(normed + c.batch * H, 0, sizeof(float) * (T - c.batch) * H);
#pragma omp for schedule(SCHEDULE)
    for (int64_t g = 0; g < QKV_GROUPS; ++g) project<T>(c.w_qkv + g * QKV_BYTES, g, H_BLOCKS, normed, QKV, c.batch, qkv);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < c.batch * HEADS; ++i) place(c, i / HEADS, i % HEADS, qkv);
#pragma omp for schedule(SCHEDULE)
    for (int64_t item = 0; item < items; ++item) attend_item(c, item, qkv);
    for (int64_t h = 0; h < c.batch * HQ; ++h) {
      int64_t b = h / HQ, head = h % HQ / GROUP, g = h % GROUP;
      join(c.memory + ((b * HKV + head) * c.parts * GROUP + g) * PART, parts_of(c.contexts[b]), GROUP * PART,
           joined + h * D);
    }
    memset(joined + c.batch * O, 0, sizeof(float) * (T - c.batch) * O);
#pragma omp for schedule(SCHEDULE) nowait
    for (int64_t g = 0; g < O_GROUPS; ++g) project<T>(c.w_o + g * O_BYTES, g, O_BLOCKS, joined, H, c.batch, c.y);
  }
}

// Up to 8 sequences of a call, from `b` on.
static Call from(Call c, int64_t b) {
  c.x += b * H, c.residual += b * H, c.y += b * H, c.total += b * H;
  c.positions += b, c.slots += b, c.contexts += b, c.table += b * c.blocks;
  c.batch = c.batch - b < 8 ? c.batch - b : 8;
  return c;
}

static bool check(Args& args, const Call& c, int64_t positions, int64_t pages) {
  for (int64_t b = 0; b < c.batch; ++b)
    if (!args.require(c.positions[b] >= 0 && c.positions[b] < positions, "a position is out of range") ||
        !args.require(c.slots[b] >= 0 && c.slots[b] < pages * PAGE, "a slot is out of range"))
      return false;
  return check_pages(args, c.table, c.contexts, c.batch, c.blocks, pages);
}

KW_RUN(args, 16) {
  auto x = args.tensor<float>(0, 2);
  auto residual = args.tensor<float>(1, 2);
  float eps = (float)args.number(2);
  auto positions = args.tensor<int64_t>(3, 1);
  auto slots = args.tensor<int64_t>(4, 1);
  auto k_cache = args.tensor<float>(5, 4);
  auto v_cache = args.tensor<float>(6, 4);
  auto table = args.tensor<int32_t>(7, 2);
  auto contexts = args.tensor<int32_t>(8, 1);
  auto weight = args.tensor<float>(9, 1);
  auto cos = args.tensor<float>(10, 2);
  auto sin = args.tensor<float>(11, 2);
  auto w_qkv = args.tensor<uint8_t>(12, 1);
  auto w_o = args.tensor<uint8_t>(13, 1);
  auto y = args.tensor<float>(14, 2);
  auto total = args.tensor<float>(15, 2);
  int64_t batch = x.size[0], pages = k_cache.size[0];
  bool rows = residual.size[0] == batch && positions.size[0] == batch && slots.size[0] == batch && table.size[0] == batch &&
              contexts.size[0] == batch && y.size[0] == batch && total.size[0] == batch;
  bool wide = x.size[1] == H && residual.size[1] == H && weight.size[0] == H && y.size[1] == H && total.size[1] == H &&
              cos.size[1] == D / 2 && sin.size[1] == D / 2 && sin.size[0] == cos.size[0];
  bool caches = k_cache.size[1] == PAGE && k_cache.size[2] == HKV && k_cache.size[3] == D && v_cache.size[0] == pages &&
                v_cache.size[1] == PAGE && v_cache.size[2] == HKV && v_cache.size[3] == D;
  bool packed = w_qkv.size[0] == QKV_GROUPS * QKV_BYTES && w_o.size[0] == O_GROUPS * O_BYTES;
  if (!args.require(rows && wide && caches && packed, "the tensors do not agree in shape")) return;
  if (!args.require(batch <= 16, "this kernel takes 1 to 16 sequences") || batch == 0) return;
  Call c{x.data, residual.data, weight.data, cos.data, sin.data, positions.data, slots.data, k_cache.data,
         v_cache.data, table.data, contexts.data, w_qkv.data, w_o.data, y.data, total.data, nullptr,
         eps, batch, table.size[1], 0, 0};
  if (!check(args, c, cos.size[0], pages)) return;
  for (int64_t b = 0; b < batch; ++b) c.longest = c.contexts[b] > c.longest ? c.contexts[b] : c.longest;
  c.parts = parts_of(c.longest);
  c.memory = scratch((batch < 8 ? batch : 8) * HKV * c.parts * GROUP * PART);
  if (!args.require(c.memory != nullptr, "out of memory")) return;
  for (int64_t b = 0; b < batch; b += 8) {  // 9 to 16 sequences are 8 and the rest: none reads what another writes
    Call part = from(c, b);
    part.batch == 1 ? run<1>(part) : part.batch == 2 ? run<2>(part) : part.batch <= 4 ? run<4>(part) : run<8>(part);
  }
}
