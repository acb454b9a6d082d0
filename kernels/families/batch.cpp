// Small batches: `run<T>` is made for 1, 2, 4 and 8 tokens; other counts are padded with zero rows that are never stored,
// so that the weights are decoded once and four variants suffice to compile. 9 to 16 tokens are 8 and the rest.
template <int T> static void run(const uint8_t* w, const float* x, float* y, int64_t tokens);

template <int T> static void run_padded(const uint8_t* w, const float* x, float* y, int64_t tokens) {
  if (tokens == T) return run<T>(w, x, y, tokens);
  alignas(64) float padded[T * COLUMNS];
  memcpy(padded, x, sizeof(float) * tokens * COLUMNS);
  memset(padded + tokens * COLUMNS, 0, sizeof(float) * (T - tokens) * COLUMNS);
  run<T>(w, padded, y, tokens);
}

static void run_any(Args& args, const uint8_t* w, const float* x, float* y, int64_t tokens) {
  if (!args.require(tokens <= 16, "this kernel takes 1 to 16 tokens") || tokens == 0) return;
  if (tokens > 8) {
    run<8>(w, x, y, 8);
    x += 8 * COLUMNS, y += 8 * OUTPUTS, tokens -= 8;
  }
  if (tokens == 1) return run<1>(w, x, y, tokens);
  if (tokens == 2) return run<2>(w, x, y, tokens);
  if (tokens <= 4) return run_padded<4>(w, x, y, tokens);
  run_padded<8>(w, x, y, tokens);
}
