// Check that contexts fit their block tables and that every page they name exists.
static bool check_pages(Args& args, const int32_t* table, const int32_t* contexts, int64_t batch, int64_t blocks,
                        int64_t pages) {
  for (int64_t b = 0; b < batch; ++b) {
    if (!args.require(contexts[b] >= 1 && contexts[b] <= blocks * PAGE, "a context does not fit its block table"))
      return false;
    for (int64_t j = 0; j * PAGE < contexts[b]; ++j)
      if (!args.require(table[b * blocks + j] >= 0 && table[b * blocks + j] < pages, "a page is out of range"))
        return false;
  }
  return true;
}
