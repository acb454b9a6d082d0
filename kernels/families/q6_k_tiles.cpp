// Q6_K: a block of 256 columns in 16 parts of 16. Header: W floats d, then W int8 scales of each part. A part has three words
// per lane: L0 and L1 with the low nibbles, H with the upper two bits. Byte b of them holds the columns 4 g + b: low nibble
// of L0, high nibble of L0, the same of L1; H has pair g at bits 2 g. The top bit of q is flipped, as q - 32 is signed.
// 212 bytes per row and block; the file has 210.
constexpr int64_t RAW_WEIGHTS = 256, RAW_BYTES = 210, SUB = 16, SUBS = 16, HEADER = 20 * W, SUB_BYTES = 12 * W;

struct Scale {
  vf d;
};

static void pack_part(const uint8_t* row, int64_t part, uint8_t* block, int sub, int lane) {
  const uint8_t* in = row + part / SUBS * RAW_BYTES;
  uint32_t low[2] = {0, 0}, high = 0;
  for (int k = 0; k < 16; ++k) {
    int column = sub * 16 + k, half = column / 128, at = column % 128;  // 128 columns: 64 bytes low, 32 bytes high
    uint32_t nibble = in[half * 64 + at % 64] >> (at / 64 * 4) & 15u;
    uint32_t pair = (in[128 + half * 32 + at % 32] >> (at / 32 * 2) & 3u) ^ 2u;
    int g = k / 4, byte = k % 4;
    low[g / 2] |= nibble << (8 * byte + 4 * (g % 2));
    high |= pair << (8 * byte + 2 * g);
  }
  float d = half(in + 208);
  memcpy(block + 4 * lane, &d, 4);
  block[(4 + sub) * W + lane] = in[192 + sub];
  uint8_t* out = block + HEADER + sub * SUB_BYTES;
  for (int i = 0; i < 2; ++i) memcpy(out + (i * W + lane) * 4, &low[i], 4);
  memcpy(out + (2 * W + lane) * 4, &high, 4);
}

KW_INLINE Scale scale_of(const uint8_t* block, int sub) {
  vf d;
  memcpy(&d, block, sizeof d);
  return {d * to_float(signed_bytes(block + (4 + sub) * W))};  // 18 bits: exact
}
constexpr int column(int step) { return step; }
constexpr float raise(int) { return 1.0f; }

// 4 (q - 32)
template <bool> KW_INLINE vf weight(const uint8_t* in, int k, const Scale&) {
  const int g = k / 4, byte = k % 4;
  vi low = words(in + g / 2 * W * 4), high = words(in + 2 * W * 4);
  low = (g % 2 ? shift_right(low, 2) : low << 2) & 0x3c3c3c3c;
  high = (high << (6 - 2 * g)) & (int32_t)0xc0c0c0c0u;
  vi four = low | high;
  return to_float((byte == 3 ? four : four << (24 - 8 * byte)) >> 24);
}

template <bool> KW_INLINE vf finish(vf part, const Scale& c, vf out, float) {
  return fma(part, c.d * set(0.25f), out);
}
