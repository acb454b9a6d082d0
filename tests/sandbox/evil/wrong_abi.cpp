// Exports nothing that is looked for.
extern "C" int run(const float* x, float* y) { return x == y; }
