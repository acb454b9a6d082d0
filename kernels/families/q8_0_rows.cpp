// Q8_0 weights in tiles of W rows, one row per lane. A group of TILES tiles is one stream of memory: for each block of 32
// columns, for each tile: W halves d, then for each column W int8. The bytes are as many as in the file.
constexpr int64_t TILE_BLOCK = 34 * W;
constexpr int64_t BLOCKS = K / 32, TOTAL_TILES = (N + W - 1) / W, GROUPS = (TOTAL_TILES + TILES - 1) / TILES;
constexpr int64_t GROUP_BYTES = TILES * BLOCKS * TILE_BLOCK;

KW_PREPARE(args, 2) {
  auto w = args.tensor<uint8_t>(0, 2);
  auto packed = args.tensor<uint8_t>(1, 1);
  if (!args.require(w.size[0] == N && w.size[1] == BLOCKS * 34, "w is not [N, K/32*34]")) return;
  if (!args.require(packed.size[0] == GROUPS * GROUP_BYTES, "packed has another size")) return;
#pragma omp parallel for schedule(static)
  for (int64_t tile = 0; tile < GROUPS * TILES; ++tile)
    for (int lane = 0; lane < W; ++lane) {
      if (tile * W + lane >= N) continue;  // padding stays zero
      for (int64_t b = 0; b < BLOCKS; ++b) {
        const uint8_t* in = w.data + (tile * W + lane) * BLOCKS * 34 + b * 34;
        uint8_t* out = packed.data + tile / TILES * GROUP_BYTES + (b * TILES + tile % TILES) * TILE_BLOCK;
        memcpy(out + 2 * lane, in, 2);
        for (int k = 0; k < 32; ++k) out[2 * W + k * W + lane] = in[2 + k];
      }
    }
}

// out[u][t] = rows of tile first + u times x row t. Each block is summed before its scale is applied: d q is exact.
template <int U, int T>
static inline void dot(const uint8_t* group, int first, const float* x, vf (&out)[U][T]) {
  constexpr int C = T == 1 ? CHAINS : 1;
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u)
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) out[u][t] = set(0.0f);
  const uint8_t* p = group + first * TILE_BLOCK;
  for (int64_t b = 0; b < BLOCKS; ++b, p += TILES * TILE_BLOCK, x += 32) {
    if (PREFETCH > 0)
      for (int line = 0; line < U * TILE_BLOCK; line += 64) __builtin_prefetch(p + PREFETCH + line);
    vf part[U][T][C];
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u)
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) part[u][t][c] = set(0.0f);
#pragma GCC unroll 32
    for (int k = 0; k < 32; ++k)
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) {
        vf q = to_float(signed_bytes(p + u * TILE_BLOCK + 2 * W + k * W));
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) part[u][t][k % C] = fma(q, set(x[t * K + k]), part[u][t][k % C]);
      }
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u)
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
        for (int c = 1; c < C; ++c) part[u][t][0] += part[u][t][c];
        out[u][t] = fma(part[u][t][0], halves(p + u * TILE_BLOCK), out[u][t]);
      }
  }
}

template <int T> static void run(const uint8_t* packed, const float* x, float* y, int64_t tokens) {
  constexpr int U = T == 1 ? TILES : (T == 2 && TILES >= 2 ? 2 : 1);  // accumulators must stay in registers
#pragma omp parallel for schedule(SCHEDULE) if (GROUPS >= MIN_GROUPS)
  for (int64_t g = 0; g < GROUPS; ++g)
    for (int first = 0; first < TILES; first += U) {
      vf out[U][T];
      dot<U, T>(packed + g * GROUP_BYTES, first, x, out);
      for (int u = 0; u < U; ++u) {
        int64_t row = (g * TILES + first + u) * W;
        for (int t = 0; t < tokens; ++t)
          for (int64_t lane = 0; lane < W && row + lane < N; ++lane) y[t * N + row + lane] = out[u][t][lane];
      }
    }
}
