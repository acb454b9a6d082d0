// One item per sequence, cache head and part of the context, shared between threads; then the parts are joined.
KW_RUN(args, 6) {
  auto q = args.tensor<float>(0, 3);
  auto k_cache = args.tensor<float>(1, 4);
  auto v_cache = args.tensor<float>(2, 4);
  auto table = args.tensor<int32_t>(3, 2);
  auto contexts = args.tensor<int32_t>(4, 1);
  auto o = args.tensor<float>(5, 3);
  int64_t batch = q.size[0], blocks = table.size[1], pages = k_cache.size[0];
  bool shapes = q.size[1] == HQ && q.size[2] == D && o.size[0] == batch && o.size[1] == HQ && o.size[2] == D &&
                table.size[0] == batch && contexts.size[0] == batch && v_cache.size[0] == pages;
  bool caches = k_cache.size[1] == PAGE && k_cache.size[2] == HKV && k_cache.size[3] == D && v_cache.size[1] == PAGE &&
                v_cache.size[2] == HKV && v_cache.size[3] == D;
  if (!args.require(shapes && caches, "the tensors do not agree in shape")) return;
  if (!check_pages(args, table.data, contexts.data, batch, blocks, pages)) return;
  int64_t longest = 0;
  for (int64_t b = 0; b < batch; ++b) longest = contexts.data[b] > longest ? contexts.data[b] : longest;
  const int64_t parts = parts_of(longest), items = batch * HKV * parts;
  float* memory = scratch(items * GROUP * PART);
  if (!args.require(memory != nullptr || items == 0, "out of memory")) return;
#pragma omp parallel if (items > 1 && batch * longest >= THREADS_FROM)
  {
#pragma omp for schedule(SCHEDULE)
    for (int64_t item = 0; item < items; ++item) {
      int64_t b = item / parts / HKV, head = item / parts % HKV, first = item % parts * (SPLIT == 0 ? longest : SPLIT);
      int64_t context = contexts.data[b], last = SPLIT == 0 || first + SPLIT > context ? context : first + SPLIT;
      alignas(64) float scaled[GROUP * D];
      for (int64_t i = 0; i < GROUP * D; i += W)
        store(scaled + i, load(q.data + (b * HQ + head * GROUP) * D + i) * set(1.0f / __builtin_sqrtf((float)D)));
      attend(scaled, k_cache.data, v_cache.data, table.data + b * blocks, head, first, last, memory + item * GROUP * PART);
    }
#pragma omp for schedule(static)
    for (int64_t h = 0; h < batch * HQ; ++h) {
      int64_t b = h / HQ, head = h % HQ / GROUP, g = h % GROUP;
      float* part = memory + ((b * HKV + head) * parts * GROUP + g) * PART;
      join(part, parts_of(contexts.data[b]), GROUP * PART, o.data + h * D);
    }
  }
}
