// Q4_1 weights in tiles of W rows, one row per lane, so that no sum runs across lanes. A group of TILES tiles is one
// stream of memory: for each block of 32 columns, for each tile: W halves d, W halves m, then four words per lane whose
// nibble j of word i is column 8 i + j. The bytes are as many as in the file.
constexpr int64_t TILE_BLOCK = 20 * W;

// Write nibbles, d and m of one row's blocks into lane `lane` of tile `tile`; row == nullptr leaves zeros (padding).
static void pack_row(const uint8_t* row, int64_t blocks, uint8_t* group, int tile, int lane) {
  if (row == nullptr) return;
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* in = row + b * 20;
    uint8_t* out = group + (b * TILES + tile) * TILE_BLOCK;
    memcpy(out + 2 * lane, in, 2);
    memcpy(out + 2 * W + 2 * lane, in + 2, 2);
    for (int i = 0; i < 4; ++i) {
      uint32_t word = 0;
      for (int j = 0; j < 8; ++j) {
        int column = 8 * i + j;
        uint32_t q = column < 16 ? in[4 + column] & 15u : in[4 + column - 16] >> 4;
        word |= q << (4 * j);
      }
      memcpy(out + 4 * W + (i * W + lane) * 4, &word, 4);
    }
  }
}

// x as `dot_fold` wants it: scaled by 16^(6-j) at column 8 i + j, so that with the nibble's own place in its word all are
// 2^24 q x (exact, and upwards, or small x would be denormal), and the sums of x over the blocks.
struct Activations {
  const float* x;
  const float* sums;
};

[[maybe_unused]] static Activations scale_activations(const float* x, int64_t columns, float* scaled, float* sums) {
  for (int64_t b = 0; b < columns / 32; ++b) {
    vf total = set(0.0f);
    for (int k = 0; k < 32; k += W) total += load(x + b * 32 + k);
    sums[b] = sum(total);
    for (int k = 0; k < 32; ++k) {
      constexpr float scale[8] = {0x1p24f, 0x1p20f, 0x1p16f, 0x1p12f, 0x1p8f, 0x1p4f, 1.0f, 0x1p24f};
      scaled[b * 32 + k] = x[b * 32 + k] * scale[k % 8];
    }
  }
  return {scaled, sums};
}

// out[u][t] = rows of tile first + u times x row t, for U tiles of a group. w = d q + m is made in a register, rounded
// once as the incumbent's dequantised weight is. Each block is summed by itself first: a lane's sum over thousands of
// columns in one go would round worse than the incumbent's, which is spread over many lanes.
template <int U, int T>
static inline void dot(const uint8_t* group, int first, int64_t blocks, const float* x, int64_t ldx, vf (*out)[T]) {
  constexpr int C = T == 1 ? CHAINS : 1;
#pragma GCC unroll 16
  for (int u = 0; u < U; ++u)
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) out[u][t] = set(0.0f);
  const uint8_t* p = group + first * TILE_BLOCK;
  for (int64_t b = 0; b < blocks; ++b, p += TILES * TILE_BLOCK, x += 32) {
    if (PREFETCH > 0)
      for (int line = 0; line < U * TILE_BLOCK; line += 64) __builtin_prefetch(p + PREFETCH + line);
    vf part[U][T][C];
#pragma GCC unroll 16
    for (int u = 0; u < U; ++u)
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) part[u][t][c] = set(0.0f);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const float place = j == 7 ? 1.0f : 1.0f / (float)(1u << (4 * j));
#pragma GCC unroll 8
      for (int u = 0; u < U; ++u) {
        const uint8_t* tile = p + u * TILE_BLOCK;
        vf d = halves(tile) * set(place), m = halves(tile + 2 * W);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          vi word = words(tile + 4 * W + i * W * 4);
          vi q = j == 7 ? shift_right(word, 28) : word & (int32_t)(15u << (4 * j));
          vf w = fma(to_float(q), d, m);
#pragma GCC unroll 8
          for (int t = 0; t < T; ++t)
            part[u][t][i % C] = fma(w, set(x[t * ldx + 8 * i + j]), part[u][t][i % C]);
        }
      }
    }
#pragma GCC unroll 16
    for (int u = 0; u < U; ++u)
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
        for (int c = 1; c < C; ++c) part[u][t][0] += part[u][t][c];
        out[u][t] += part[u][t][0];
      }
  }
}

// The same for one token with the scale applied per block: sum of q x, then d times it plus m times the sum of x. Fewer
// operations per weight; rounds at the size of q x, so inputs with a large mean lose digits.
template <int U>
static inline void dot_fold(const uint8_t* group, int first, int64_t blocks, Activations a, vf (*out)[1]) {
  vf acc[U];
#pragma GCC unroll 16
  for (int u = 0; u < U; ++u) acc[u] = set(0.0f);
  const uint8_t* p = group + first * TILE_BLOCK;
  const float* x = a.x;
  for (int64_t b = 0; b < blocks; ++b, p += TILES * TILE_BLOCK, x += 32) {
    if (PREFETCH > 0)
      for (int line = 0; line < U * TILE_BLOCK; line += 64) __builtin_prefetch(p + PREFETCH + line);
    vf part[U][CHAINS];
#pragma GCC unroll 16
    for (int u = 0; u < U; ++u)
#pragma GCC unroll 4
      for (int c = 0; c < CHAINS; ++c) part[u][c] = set(0.0f);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j)
#pragma GCC unroll 8
        for (int u = 0; u < U; ++u) {
          vi word = words(p + u * TILE_BLOCK + 4 * W + i * W * 4);
          vi q = j == 7 ? shift_right(word, 28) : word & (int32_t)(15u << (4 * j));
          part[u][j % CHAINS] = fma(to_float(q), set(x[8 * i + j]), part[u][j % CHAINS]);
        }
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u) {
      vf total = part[u][0];
#pragma GCC unroll 4
      for (int c = 1; c < CHAINS; ++c) total += part[u][c];
      acc[u] = fma(total, halves(p + u * TILE_BLOCK) * set(0x1p-24f), acc[u]);
      acc[u] = fma(halves(p + u * TILE_BLOCK + 2 * W), set(a.sums[b]), acc[u]);
    }
  }
#pragma GCC unroll 16
  for (int u = 0; u < U; ++u) out[u][0] = acc[u];
}

// Store the first `count` lanes of v.
static inline void store_rows(float* y, vf v, int64_t count) {
  if (count >= W) return store(y, v);
  for (int64_t lane = 0; lane < count; ++lane) y[lane] = v[lane];
}
