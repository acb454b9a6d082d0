// Calls one candidate a few times on the inputs of a file, in a build under a sanitizer, and ends.
//
//     driver JOB        JOB: written by sandbox/sanitizer.py; all numbers are int64 or float64, little-endian
//         "KWJOB001", threads, calls, number of values, then each value:
//             kind 0 (tensor): DLPack type code, bits, rank, shape…, bytes, contents
//             kind 1 (number): float64          kind 2 (integer): int64
//         number of prepare's arguments, their value indices…, number of run's arguments, their value indices…
//
// Every tensor lies in an allocation of exactly its own size, so that AddressSanitizer sees the first byte beyond it.
// Exit status: 0 and the last line "calls done" when all calls returned, 68 when the candidate refused its arguments.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

extern "C" int KW_SYMBOL_RUN(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);
#ifdef KW_SYMBOL_PREPARE
extern "C" int KW_SYMBOL_PREPARE(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);
#endif
extern "C" void omp_set_num_threads(int);

extern "C" void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) {
  fprintf(stderr, "the candidate raised %s: %s\n", kind, message);
}

typedef int Function(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);
static FILE* job;

static void read_bytes(void* to, size_t count) {
  if (fread(to, 1, count, job) != count) {
    fprintf(stderr, "the job file is too short\n");
    _exit(69);
  }
}

static int64_t read_integer() {
  int64_t value;
  read_bytes(&value, sizeof value);
  return value;
}

static TVMFFIAny read_tensor() {
  DLTensor* tensor = static_cast<DLTensor*>(calloc(1, sizeof(DLTensor)));
  tensor->device.device_type = kDLCPU;
  tensor->dtype.code = static_cast<uint8_t>(read_integer());
  tensor->dtype.bits = static_cast<uint8_t>(read_integer());
  tensor->dtype.lanes = 1;
  tensor->ndim = static_cast<int32_t>(read_integer());
  tensor->shape = static_cast<int64_t*>(calloc(2 * tensor->ndim + 1, sizeof(int64_t)));
  tensor->strides = tensor->shape + tensor->ndim;
  for (int d = 0; d < tensor->ndim; ++d) tensor->shape[d] = read_integer();
  int64_t stride = 1;
  for (int d = tensor->ndim - 1; d >= 0; --d) {
    tensor->strides[d] = stride;
    stride *= tensor->shape[d];
  }
  const int64_t bytes = read_integer();
  if (posix_memalign(&tensor->data, 64, bytes) != 0) _exit(69);
  read_bytes(tensor->data, bytes);
  TVMFFIAny value;
  memset(&value, 0, sizeof value);
  value.type_index = kTVMFFIDLTensorPtr;
  value.v_ptr = tensor;
  return value;
}

static TVMFFIAny read_value() {
  TVMFFIAny value;
  memset(&value, 0, sizeof value);
  const int64_t kind = read_integer();
  if (kind == 0) return read_tensor();
  value.type_index = kind == 1 ? kTVMFFIFloat : kTVMFFIInt;
  read_bytes(&value.v_int64, sizeof value.v_int64);
  return value;
}

static TVMFFIAny* read_arguments(const TVMFFIAny* values, int32_t* count) {
  *count = static_cast<int32_t>(read_integer());
  TVMFFIAny* chosen = static_cast<TVMFFIAny*>(calloc(*count + 1, sizeof(TVMFFIAny)));
  for (int32_t i = 0; i < *count; ++i) chosen[i] = values[read_integer()];
  return chosen;
}

static void call(Function* function, const TVMFFIAny* arguments, int32_t count) {
  TVMFFIAny result;
  memset(&result, 0, sizeof result);
  if (function(nullptr, arguments, count, &result) != 0) _exit(68);
}

int main(int count, char** names) {
  char magic[8];
  job = count == 2 ? fopen(names[1], "rb") : nullptr;
  if (job == nullptr) return 69;
  read_bytes(magic, sizeof magic);
  if (memcmp(magic, "KWJOB001", sizeof magic) != 0) return 69;
  omp_set_num_threads(static_cast<int>(read_integer()));
  const int64_t calls = read_integer(), num_values = read_integer();
  TVMFFIAny* values = static_cast<TVMFFIAny*>(calloc(num_values + 1, sizeof(TVMFFIAny)));
  for (int64_t i = 0; i < num_values; ++i) values[i] = read_value();
  int32_t num_packing, num_running;
  TVMFFIAny* packing = read_arguments(values, &num_packing);
  TVMFFIAny* running = read_arguments(values, &num_running);
#ifdef KW_SYMBOL_PREPARE
  call(KW_SYMBOL_PREPARE, packing, num_packing);
#else
  (void)packing;
#endif
  for (int64_t i = 0; i < calls; ++i) call(KW_SYMBOL_RUN, running, num_running);
  fprintf(stderr, "calls done\n");
  fflush(nullptr);
  return 0;
}
