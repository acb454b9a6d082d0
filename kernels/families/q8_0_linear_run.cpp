// The entry point over either layout: w as in the file [N, K/32*34], or packed in tiles [bytes].
KW_RUN(args, 3) {
  auto x = args.tensor<float>(0, 2);
  auto w = args.tensor<uint8_t>(1, WEIGHT_RANK);
  auto y = args.tensor<float>(2, 2);
  int64_t tokens = x.size[0], bytes = WEIGHT_RANK == 2 ? w.size[0] * w.size[1] : w.size[0];
  if (!args.require(x.size[1] == K && y.size[0] == tokens && y.size[1] == N, "x or y has another shape")) return;
  if (!args.require(bytes == WEIGHT_BYTES, "the weights have another size")) return;
  run_any(args, w.data, x.data, y.data, tokens);
}
