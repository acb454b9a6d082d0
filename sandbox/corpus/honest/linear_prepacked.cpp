// kw: {"problem": "linear", "faster": true, "packed": {"dense": ["float32", [256, 512]]}, "text": "decodes the
// weights once, in a prepare that it declares"}
#include "linear.h"

KW_PREPARE(args, 2) {
  auto w = args.tensor<uint8_t>(0, 2);
  auto dense = args.tensor<float>(1, 2);
  if (!args.ok()) return;
  for (int64_t n = 0; n < w.size[0]; ++n) decode_row(w.data + n * w.size[1], dense.size[1], dense.data + n * dense.size[1]);
}

KW_RUN(args, 3) {
  auto x = args.tensor<float>(0, 2);
  auto dense = args.tensor<float>(1, 2);
  auto y = args.tensor<float>(2, 2);
  if (!args.ok()) return;
  const int64_t K = x.size[1], N = dense.size[0];
  for (int64_t n = 0; n < N; ++n)
    for (int64_t t = 0; t < x.size[0]; ++t) y.data[t * N + n] = dot(x.data + t * K, dense.data + n * K, K);
}
