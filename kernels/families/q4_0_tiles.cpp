// Q4_0: two blocks of 32 columns share a header of 2 W halves d, so that words start at cache lines; an odd last block leaves
// a gap. Nibbles are stored with their top bit flipped, as signed q - 8.
constexpr int64_t RAW_WEIGHTS = 32, RAW_BYTES = 18, SUB = 32, SUBS = 2, HEADER = 4 * W, SUB_BYTES = 16 * W;

struct Scale {
  vf d;
};

static void pack_part(const uint8_t* row, int64_t part, uint8_t* block, int sub, int lane) {
  const uint8_t* in = row + part * RAW_BYTES;
  uint8_t q[32];
  for (int k = 0; k < 16; ++k) {
    q[k] = (in[2 + k] & 15) ^ 8;
    q[16 + k] = (in[2 + k] >> 4) ^ 8;
  }
  memcpy(block + sub * 2 * W + 2 * lane, in, 2);
  pack_nibbles(q, block + HEADER + sub * SUB_BYTES, lane);
}

KW_INLINE Scale scale_of(const uint8_t* block, int sub) { return {halves(block + sub * 2 * W)}; }
constexpr int column(int step) { return step; }
constexpr float raise(int) { return 1.0f; }

// q - 8, by two shifts or from a table of 16 lanes. It is not folded as 16^j q: the sums of q x and of 8 x nearly cancel.
template <bool> KW_INLINE vf weight(const uint8_t* in, int k, const Scale&) {
  const int j = k % 8;
  vi word = words(in + k / 8 * W * 4);
  if constexpr (DECODE_TABLE) {
    vf table;
    for (int lane = 0; lane < W; ++lane) table[lane] = (float)(lane < 8 ? lane : lane - 16);
    return pick(table, shift_right(word, 4 * j));
  } else {
    return to_float(word << (28 - 4 * j) >> 28);
  }
}

template <bool> KW_INLINE vf finish(vf part, const Scale& c, vf out, float) { return fma(part, c.d, out); }
