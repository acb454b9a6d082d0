// A weight matrix in tiles of W rows, one row per lane, so that no sum runs across lanes. A group of TILES tiles is one
// stream of memory: block after block, tile after tile. The part before this one tells what a block is: a HEADER of scales,
// then SUBS times SUB_BYTES of SUB columns each; and how a weight is made of it.
constexpr int64_t TILE_BLOCK = HEADER + SUBS * SUB_BYTES;

constexpr int64_t raw_bytes(int64_t columns) { return columns / RAW_WEIGHTS * RAW_BYTES; }
constexpr int64_t group_bytes(int64_t columns) { return TILES * ((columns / SUB + SUBS - 1) / SUBS) * TILE_BLOCK; }

// Write one row as it is in the file into lane `lane` of tile `tile` of a group.
static void pack_row(const uint8_t* row, int64_t columns, uint8_t* group, int64_t tile, int lane) {
  for (int64_t part = 0; part < columns / SUB; ++part)
    pack_part(row, part, group + (part / SUBS * TILES + tile) * TILE_BLOCK, part % SUBS, lane);
}

// x as folded sums want it, and the sums of its parts of SUB columns.
[[maybe_unused]] static void fold_activations(const float* x, int64_t columns, float* raised, float* sums) {
  for (int64_t part = 0; part < columns / SUB; ++part) {
    float total[SUB];
    for (int k = 0; k < SUB; ++k) {
      raised[part * SUB + k] = x[part * SUB + k] * raise(k);
      total[k] = x[part * SUB + k];
    }
    for (int width = SUB / 2; width > 0; width /= 2)
      for (int k = 0; k < width; ++k) total[k] += total[k + width];
    sums[part] = total[0];
  }
}

// out[u][t] = rows of tile first + u times x row t, for U tiles of a group over K columns. Each part of SUB columns is
// summed by itself: a lane's sum over thousands of columns in one go would round worse than the incumbent's, which is
// spread over many lanes. FOLD (one token): x is raised, and a part's scale and offset are applied to its sum: fewer
// operations per weight, rounded at the size of q x.
template <bool FOLD, int U, int T, int64_t K>
static inline void dot(const uint8_t* group, int first, const float* x, const float* sums, vf (*out)[T]) {
  constexpr int C = T == 1 ? CHAINS : 1;
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u)
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) out[u][t] = set(0.0f);
  const uint8_t* block = group + first * TILE_BLOCK;
  for (int64_t begin = 0; begin < K / SUB; begin += SUBS, block += TILES * TILE_BLOCK)
    for (int sub = 0; sub < SUBS && begin + sub < K / SUB; ++sub, x += SUB) {
      const uint8_t* in = block + HEADER + sub * SUB_BYTES;
      Scale scale[U];
      vf part[U][T][C];
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) {
        if (PREFETCH > 0)
          for (int64_t line = 0; line < TILE_BLOCK / SUBS; line += 64)
            __builtin_prefetch(block + u * TILE_BLOCK + sub * (TILE_BLOCK / SUBS) + PREFETCH + line);
        scale[u] = scale_of(block + u * TILE_BLOCK, sub);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
          for (int c = 0; c < C; ++c) part[u][t][c] = set(0.0f);
      }
#pragma GCC unroll 32
      for (int step = 0; step < SUB; ++step)
#pragma GCC unroll 4
        for (int u = 0; u < U; ++u) {
          const int k = column(step);
          vf w = weight<FOLD>(in + u * TILE_BLOCK, k, scale[u]);
#pragma GCC unroll 8
          for (int t = 0; t < T; ++t) part[u][t][step % C] = fma(w, set(x[t * K + k]), part[u][t][step % C]);
        }
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u)
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
          for (int c = 1; c < C; ++c) part[u][t][0] += part[u][t][c];
          out[u][t] = finish<FOLD>(part[u][t][0], scale[u], out[u][t], FOLD ? sums[begin + sub] : 0.0f);
        }
    }
}

// Store the first `count` lanes of v.
static inline void store_rows(float* y, vf v, int64_t count) {
  if (count >= W) return store(y, v);
  for (int64_t lane = 0; lane < count; ++lane) y[lane] = v[lane];
}
