// bfloat16: word i of a lane has column 2 i in its lower and 2 i + 1 in its upper half. Bytes as in the file.
constexpr int64_t RAW_WEIGHTS = 1, RAW_BYTES = 2, SUB = 32, SUBS = 1, HEADER = 0, SUB_BYTES = 64 * W;

struct Scale {};

static void pack_part(const uint8_t* row, int64_t part, uint8_t* block, int, int lane) {
  for (int i = 0; i < 16; ++i) memcpy(block + (i * W + lane) * 4, row + (part * 16 + i) * 4, 4);
}

KW_INLINE Scale scale_of(const uint8_t*, int) { return {}; }
constexpr int column(int step) { return step; }
constexpr float raise(int) { return 1.0f; }

template <bool> KW_INLINE vf weight(const uint8_t* in, int k, const Scale&) {
  vi word = words(in + k / 2 * W * 4);
  return (vf)(k % 2 ? word & (int32_t)0xffff0000u : word << 16);
}

template <bool> KW_INLINE vf finish(vf part, const Scale&, vf out, float) { return out + part; }
