// Q4_K: a block of 256 columns in 8 parts of 32. Header: W halves d, W halves dmin, then the 6-bit scales and the mins of the
// 8 parts, each unpacked to a byte. 148 bytes per row and block; the file has 144.
constexpr int64_t RAW_WEIGHTS = 256, RAW_BYTES = 144, SUB = 32, SUBS = 8, HEADER = 20 * W, SUB_BYTES = 16 * W;

struct Scale {
  vf d, m;  // w = d q + m
};

static void pack_part(const uint8_t* row, int64_t part, uint8_t* block, int sub, int lane) {
  const uint8_t *in = row + part / SUBS * RAW_BYTES, *s = in + 4, *nibbles = in + 16 + sub / 2 * 32;
  uint8_t low = sub < 4 ? s[sub] & 63 : (s[sub + 4] & 15) | (s[sub - 4] >> 6 << 4);
  uint8_t min = sub < 4 ? s[sub + 4] & 63 : (s[sub + 4] >> 4) | (s[sub] >> 6 << 4);
  uint8_t q[32];
  for (int k = 0; k < 32; ++k) q[k] = sub % 2 ? nibbles[k] >> 4 : nibbles[k] & 15;
  memcpy(block + 2 * lane, in, 2);
  memcpy(block + 2 * W + 2 * lane, in + 2, 2);
  block[(4 + sub) * W + lane] = low;
  block[(12 + sub) * W + lane] = min;
  pack_nibbles(q, block + HEADER + sub * SUB_BYTES, lane);
}

KW_INLINE Scale scale_of(const uint8_t* block, int sub) {
  vf scale = to_float(bytes(block + (4 + sub) * W)), min = to_float(bytes(block + (12 + sub) * W));
  // negated by its sign bit: a minus sign would let the compiler fuse this product into every weight, and not d q
  return {halves(block) * scale, (vf)((vi)(halves(block + 2 * W) * min) ^ INT32_MIN)};
}

// Nibble j of each word times 16^j, as it lies there; the last one itself, or it would be a sign.
KW_INLINE vf nibble_in_place(vi word, int j) {
  return to_float(j == 7 ? shift_right(word, 28) : word & (int32_t)(15u << (4 * j)));
}

// What undoes that, and what x is multiplied by instead when sums are folded: then each product is 2^24 q x (upwards, as
// small x would be denormal).
constexpr float undo_place(int j) { return j == 7 ? 1.0f : 1.0f / (float)(1u << (4 * j)); }
constexpr float raise(int k) { return 0x1p24f * undo_place(k % 8); }

constexpr int column(int step) { return 8 * (step % 4) + step / 4; }  // nibbles of one place follow each other

// d q + m, rounded once as the incumbent's dequantised weight is; or, to be folded, 16^j q.
template <bool FOLD> KW_INLINE vf weight(const uint8_t* in, int k, const Scale& c) {
  vf q = nibble_in_place(words(in + k / 8 * W * 4), k % 8);
  if constexpr (FOLD) return q;
  return fma(q, c.d * set(undo_place(k % 8)), c.m);
}

template <bool FOLD> KW_INLINE vf finish(vf part, const Scale& c, vf out, float sum) {
  if constexpr (!FOLD) return out + part;
  return fma(c.m, set(sum), fma(part, c.d * set(0x1p-24f), out));
}
