// 32 nibbles of one lane in four words, nibble j of word i for column 8 i + j; the words of W lanes lie side by side.
static void pack_nibbles(const uint8_t (&q)[32], uint8_t* out, int lane) {
  for (int i = 0; i < 4; ++i) {
    uint32_t word = 0;
    for (int j = 0; j < 8; ++j) word |= (uint32_t)q[8 * i + j] << (4 * j);
    memcpy(out + (i * W + lane) * 4, &word, 4);
  }
}
