// One row per iteration; rows are shared between threads from THREADS_FROM rows on.
KW_RUN(args, 6) {
  auto x = args.tensor<float>(0, 2);
  auto residual = args.tensor<float>(1, 2);
  auto weight = args.tensor<float>(2, 1);
  float eps = (float)args.number(3);
  auto y = args.tensor<float>(4, 2);
  auto total = args.tensor<float>(5, 2);
  int64_t tokens = x.size[0];
  bool same = residual.size[0] == tokens && y.size[0] == tokens && total.size[0] == tokens;
  bool wide = x.size[1] == H && residual.size[1] == H && weight.size[0] == H && y.size[1] == H && total.size[1] == H;
  if (!args.require(same && wide, "the tensors do not agree in shape")) return;
  if (tokens < THREADS_FROM) {
    for (int64_t t = 0; t < tokens; ++t)
      norm_row(x.data + t * H, residual.data + t * H, weight.data, eps, y.data + t * H, total.data + t * H);
    return;
  }
#pragma omp parallel for schedule(SCHEDULE)
  for (int64_t t = 0; t < tokens; ++t)
    norm_row(x.data + t * H, residual.data + t * H, weight.data, eps, y.data + t * H, total.data + t * H);
}
