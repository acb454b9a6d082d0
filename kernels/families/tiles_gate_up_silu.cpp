// y = silu(x w_gate^T) * (x w_up^T): a group holds TILES/2 pairs of a gate tile and the up tile of the same rows.
constexpr int64_t PAIRS = TILES / 2, GROUPS = (F + PAIRS * W - 1) / (PAIRS * W), GROUP_BYTES = group_bytes(H);

KW_PREPARE(args, 2) {
  auto w = args.tensor<uint8_t>(0, 2);
  auto packed = args.tensor<uint8_t>(1, 1);
  if (!args.require(w.size[0] == 2 * F && w.size[1] == raw_bytes(H), "w is not [2F, bytes of H weights]")) return;
  if (!args.require(packed.size[0] == GROUPS * GROUP_BYTES, "packed has another size")) return;
#pragma omp parallel for schedule(static)
  for (int64_t pair = 0; pair < GROUPS * PAIRS; ++pair)
    for (int lane = 0; lane < W && pair * W + lane < F; ++lane)  // padding stays zero
      for (int up = 0; up < 2; ++up)
        pack_row(w.data + (pair * W + lane + up * F) * raw_bytes(H), H, packed.data + pair / PAIRS * GROUP_BYTES,
                 2 * (pair % PAIRS) + up, lane);
}

template <int T> static void run(const uint8_t* packed, const float* x, float* y, int64_t tokens) {
  constexpr bool FOLD = T == 1 && DECODE_FOLD;
  constexpr int U = T == 1 ? TILES : T <= 4 ? 2 : 1;  // accumulators must stay in registers
  alignas(64) float raised[FOLD ? H : 1], sums[FOLD ? H / SUB : 1];
  if constexpr (FOLD) fold_activations(x, H, raised, sums);
  const float* in = FOLD ? raised : x;
#pragma omp parallel for schedule(SCHEDULE) if (GROUPS >= MIN_GROUPS)
  for (int64_t g = 0; g < GROUPS; ++g) {
    vf out[TILES][T];
    for (int first = 0; first < TILES; first += U)
      dot<FOLD, U, T, H>(packed + g * GROUP_BYTES, first, in, sums, out + first);
    for (int p = 0; p < PAIRS; ++p) {
      int64_t row = (g * PAIRS + p) * W;
      for (int t = 0; t < tokens && row < F; ++t)
        store_rows(y + t * F + row, silu(out[2 * p][t]) * out[2 * p + 1][t], F - row);
    }
  }
}

KW_RUN(args, 3) {
  auto x = args.tensor<float>(0, 2);
  auto packed = args.tensor<uint8_t>(1, 1);
  auto y = args.tensor<float>(2, 2);
  int64_t tokens = x.size[0];
  if (!args.require(x.size[1] == H && y.size[0] == tokens && y.size[1] == F, "x or y has another shape")) return;
  if (!args.require(packed.size[0] == GROUPS * GROUP_BYTES, "packed has another size")) return;
  run_any(args, packed.data, x.data, y.data, tokens);
}
