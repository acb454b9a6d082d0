// Q8_0: W halves d, then for each of 32 columns W int8. Bytes as in the file.
constexpr int64_t RAW_WEIGHTS = 32, RAW_BYTES = 34, SUB = 32, SUBS = 1, HEADER = 2 * W, SUB_BYTES = 32 * W;

struct Scale {
  vf d;
};

static void pack_part(const uint8_t* row, int64_t part, uint8_t* block, int, int lane) {
  const uint8_t* in = row + part * RAW_BYTES;
  memcpy(block + 2 * lane, in, 2);
  for (int k = 0; k < 32; ++k) block[HEADER + k * W + lane] = in[2 + k];
}

KW_INLINE Scale scale_of(const uint8_t* block, int) { return {halves(block)}; }
constexpr int column(int step) { return step; }
constexpr float raise(int) { return 1.0f; }

template <bool> KW_INLINE vf weight(const uint8_t* in, int k, const Scale&) {
  return to_float(signed_bytes(in + k * W));
}

template <bool> KW_INLINE vf finish(vf part, const Scale& c, vf out, float) { return fma(part, c.d, out); }
