// Typed views of TVM-FFI arguments for native candidates; C headers only, so that a kernel compiles in a moment.
//
//     #include <kernelwright.h>
//     KW_RUN(args, 3) {                                  // exports __tvm_ffi_run, checks the argument count
//       auto x = args.tensor<float>(0, 2);               // argument 0: contiguous float32 [T, K]
//       auto w = args.tensor<int8_t>(1, 2);
//       auto y = args.tensor<float>(2, 2);
//       if (!args.require(y.size[0] == x.size[0], "y and x differ in rows")) return;
//       ...                                              // returning after a failed check raises in Python
//     }
//
// KW_PREPARE(args, n) exports __tvm_ffi_prepare in the same way. `args.number(i)` is a double, `args.integer(i)` an
// int64. A failed check gives a view whose data is null and makes `args.ok()` false.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <tvm/ffi/c_api.h>

namespace kw {

template <typename T> struct dtype_of;
template <> struct dtype_of<float> { static constexpr int code = kDLFloat, bits = 32; };
template <> struct dtype_of<double> { static constexpr int code = kDLFloat, bits = 64; };
template <> struct dtype_of<int8_t> { static constexpr int code = kDLInt, bits = 8; };
template <> struct dtype_of<uint8_t> { static constexpr int code = kDLInt, bits = 8; };  // bytes: int8 seen unsigned
template <> struct dtype_of<int32_t> { static constexpr int code = kDLInt, bits = 32; };
template <> struct dtype_of<int64_t> { static constexpr int code = kDLInt, bits = 64; };

template <typename T> struct Tensor {
  T* data = nullptr;
  int64_t size[6] = {0, 0, 0, 0, 0, 0};
};

class Args {
 public:
  Args(const TVMFFIAny* values, int count) : values_(values), count_(count) { message_[0] = 0; }

  bool ok() const { return message_[0] == 0; }
  const char* message() const { return message_; }

  // Fail the call with `text` unless `condition` holds. Returns ok().
  bool require(bool condition, const char* text) {
    if (!condition && ok()) snprintf(message_, sizeof message_, "%s", text);
    return ok();
  }

  // Argument `i` as a contiguous CPU tensor of T with `rank` dimensions.
  template <typename T> Tensor<T> tensor(int i, int rank) {
    Tensor<T> view;
    const DLTensor* raw = dl_tensor(i);
    if (raw == nullptr) return fail<T>(i, "is not a tensor", rank);
    if (raw->device.device_type != kDLCPU) return fail<T>(i, "is not on the CPU", rank);
    if (raw->dtype.code != dtype_of<T>::code || raw->dtype.bits != dtype_of<T>::bits || raw->dtype.lanes != 1)
      return fail<T>(i, "has another dtype", rank);
    if (raw->ndim != rank || rank > 6) return fail<T>(i, "has another rank", rank);
    int64_t stride = 1;
    for (int d = rank - 1; d >= 0; --d) {
      view.size[d] = raw->shape[d];
      if (raw->strides != nullptr && raw->shape[d] != 1 && raw->strides[d] != stride)
        return fail<T>(i, "is not contiguous", rank);
      stride *= raw->shape[d];
    }
    view.data = reinterpret_cast<T*>(static_cast<char*>(raw->data) + raw->byte_offset);
    return view;
  }

  double number(int i) {
    const TVMFFIAny& v = values_[i];
    if (v.type_index == kTVMFFIFloat) return v.v_float64;
    if (v.type_index == kTVMFFIInt) return static_cast<double>(v.v_int64);
    if (ok()) snprintf(message_, sizeof message_, "argument %d is not a number", i);
    return 0.0;
  }

  int64_t integer(int i) {
    const TVMFFIAny& v = values_[i];
    if (v.type_index == kTVMFFIInt) return v.v_int64;
    if (ok()) snprintf(message_, sizeof message_, "argument %d is not an integer", i);
    return 0;
  }

  void fail_count(int expected) {
    snprintf(message_, sizeof message_, "expected %d arguments, got %d", expected, count_);
  }

 private:
  const DLTensor* dl_tensor(int i) const {
    const TVMFFIAny& v = values_[i];
    if (v.type_index == kTVMFFIDLTensorPtr) return static_cast<const DLTensor*>(v.v_ptr);
    if (v.type_index == kTVMFFITensor)  // the DLTensor follows the object's header
      return reinterpret_cast<const DLTensor*>(reinterpret_cast<const char*>(v.v_obj) + sizeof(TVMFFIObject));
    return nullptr;
  }

  template <typename T> Tensor<T> fail(int i, const char* what, int rank) {
    if (ok())
      snprintf(message_, sizeof message_, "argument %d %s: expected a contiguous CPU tensor, %s%d, rank %d", i, what,
               dtype_of<T>::code == kDLFloat ? "float" : "int", dtype_of<T>::bits, rank);
    return Tensor<T>();
  }

  const TVMFFIAny* values_;
  int count_;
  char message_[160];
};

template <typename Body> int call(const TVMFFIAny* values, int count, int expected, TVMFFIAny* result, Body body) {
  Args args(values, count);
  if (count != expected) {
    args.fail_count(expected);
  } else {
    try {
      body(args);
    } catch (...) {
      args.require(false, "the kernel threw a C++ exception");
    }
  }
  if (args.ok()) {
    result->type_index = kTVMFFINone;
    result->v_int64 = 0;
    return 0;
  }
  TVMFFIErrorSetRaisedFromCStr("ValueError", args.message());
  return -1;
}

}  // namespace kw

#define KW_EXPORT_(NAME, ARGS, COUNT)                                                                                  \
  static void kw_body_##NAME(kw::Args& ARGS);                                                                          \
  extern "C" __attribute__((visibility("default"))) int __tvm_ffi_##NAME(void*, const TVMFFIAny* values,               \
                                                                         int32_t count, TVMFFIAny* result) {           \
    return kw::call(values, count, COUNT, result, kw_body_##NAME);                                                     \
  }                                                                                                                    \
  static void kw_body_##NAME(kw::Args& ARGS)

#define KW_RUN(ARGS, COUNT) KW_EXPORT_(run, ARGS, COUNT)
#define KW_PREPARE(ARGS, COUNT) KW_EXPORT_(prepare, ARGS, COUNT)
