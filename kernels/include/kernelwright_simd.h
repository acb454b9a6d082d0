// Vectors of float and int32 as wide as the instruction set level given by -march: 16 lanes with AVX-512 (x86-64-v4),
// 8 with AVX2, FMA and F16C (x86-64-v3), 4 elsewhere in portable C++ (SSE2, NEON and others through the compiler).
// Arithmetic is the compiler's own (+ - * / & >> on vectors, a * b + c fused under -ffp-contract=fast); below is what it has
// no operator for. GCC's builtins are called directly: <immintrin.h> alone would cost 0.75 s per compilation.
#pragma once
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define KW_V4 1
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define KW_V3 1
#endif
#define KW_INLINE static inline __attribute__((always_inline))

namespace kw {

#if defined(KW_V4)
constexpr int W = 16;
#elif defined(KW_V3)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif
typedef float vf __attribute__((vector_size(4 * W)));
typedef int32_t vi __attribute__((vector_size(4 * W)));
typedef float f4 __attribute__((vector_size(16)));
typedef float f8 __attribute__((vector_size(32)));
typedef short h8 __attribute__((vector_size(16)));
typedef short h16 __attribute__((vector_size(32)));
typedef char b16 __attribute__((vector_size(16)));
typedef long long q2 __attribute__((vector_size(16)));

KW_INLINE vf load(const float* p) { vf v; memcpy(&v, p, sizeof v); return v; }
KW_INLINE vi load(const int32_t* p) { vi v; memcpy(&v, p, sizeof v); return v; }
KW_INLINE void store(float* p, vf v) { memcpy(p, &v, sizeof v); }
KW_INLINE vf to_float(vi v) { return __builtin_convertvector(v, vf); }
KW_INLINE vi words(const uint8_t* p) { vi v; memcpy(&v, p, sizeof v); return v; }

// The same value in every lane.
KW_INLINE vf set(float x) { return x - vf{}; }

// a * b + c; rounded once where the level has FMA (the build passes -ffp-contract=fast).
KW_INLINE vf fma(vf a, vf b, vf c) { return a * b + c; }

KW_INLINE uint32_t f16_bits_to_f32_bits(uint32_t h) {
  uint32_t magnitude = (h & 0x7fffu) << 13;
  float scaled;
  memcpy(&scaled, &magnitude, 4);
  scaled *= 5.192296858534828e33f;  // 2^112 moves the exponent's bias; right for denormals too
  memcpy(&magnitude, &scaled, 4);
  if ((h & 0x7c00u) == 0x7c00u) magnitude |= 0x7f800000u;
  return magnitude | (h & 0x8000u) << 16;
}

// One IEEE half at `p` as float.
KW_INLINE float half(const uint8_t* p) {
  uint16_t h;
  memcpy(&h, p, 2);
#if defined(KW_V4) || defined(KW_V3)
  return ((f4)__builtin_ia32_vcvtph2ps(h8{(short)h, 0, 0, 0, 0, 0, 0, 0}))[0];
#else
  uint32_t bits = f16_bits_to_f32_bits(h);
  float value;
  memcpy(&value, &bits, 4);
  return value;
#endif
}

// W consecutive halves at `p` as floats.
KW_INLINE vf halves(const uint8_t* p) {
#if defined(KW_V4)
  h16 v;
  memcpy(&v, p, sizeof v);
  return (vf)__builtin_ia32_vcvtph2ps512_mask(v, vf{}, (short)-1, 4);  // 4: rounding as it is set
#elif defined(KW_V3)
  h8 v;
  memcpy(&v, p, sizeof v);
  return (vf)__builtin_ia32_vcvtph2ps256(v);
#else
  return vf{half(p), half(p + 2), half(p + 4), half(p + 6)};
#endif
}

// W consecutive bytes at `p`, zero-extended.
KW_INLINE vi bytes(const uint8_t* p) {
#if defined(KW_V4)
  b16 v;
  memcpy(&v, p, sizeof v);
  return (vi)__builtin_ia32_pmovzxbd512_mask(v, vi{}, (short)-1);
#elif defined(KW_V3)
  long long low;
  memcpy(&low, p, sizeof low);
  return (vi)__builtin_ia32_pmovzxbd256((b16)q2{low, 0});
#else
  return vi{p[0], p[1], p[2], p[3]};
#endif
}

// W consecutive int8 at `p`, sign-extended.
KW_INLINE vi signed_bytes(const uint8_t* p) {
#if defined(KW_V4)
  b16 v;
  memcpy(&v, p, sizeof v);
  return (vi)__builtin_ia32_pmovsxbd512_mask(v, vi{}, (short)-1);
#elif defined(KW_V3)
  long long low;
  memcpy(&low, p, sizeof low);
  return (vi)__builtin_ia32_pmovsxbd256((b16)q2{low, 0});
#else
  return vi{(int8_t)p[0], (int8_t)p[1], (int8_t)p[2], (int8_t)p[3]};
#endif
}

// v >> count with zeros shifted in.
KW_INLINE vi shift_right(vi v, int count) {
  typedef uint32_t vu __attribute__((vector_size(4 * W)));
  return (vi)((vu)v >> (uint32_t)count);
}

// table[v], by the lower bits of v that count W lanes; the others do not matter.
KW_INLINE vf pick(vf table, vi v) {
#if defined(KW_V4)
  return (vf)__builtin_ia32_permvarsf512_mask(table, v, vf{}, (short)-1);
#elif defined(KW_V3)
  return (vf)__builtin_ia32_permvarsf256(table, v);
#else
  return vf{table[v[0] & 3], table[v[1] & 3], table[v[2] & 3], table[v[3] & 3]};
#endif
}

// The sum of all lanes, added pairwise.
KW_INLINE float sum(vf v) {
#if defined(KW_V4)
  f8 u = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) + __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  f4 t = __builtin_shufflevector(u, u, 0, 1, 2, 3) + __builtin_shufflevector(u, u, 4, 5, 6, 7);
#elif defined(KW_V3)
  f4 t = __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
#else
  f4 t = v;
#endif
  t += __builtin_shufflevector(t, t, 2, 3, 0, 1);
  return t[0] + t[1];
}

// exp(x) within 2 ulp; inf above 88.73, 0 below -103.98, NaN stays NaN. x = n ln2 + r with |r| <= ln2/2 (Cody and
// Waite's two-part ln2), the Taylor polynomial of degree 7 in r, then 2^n in two factors so that denormals come out.
KW_INLINE vf exp(vf x) {
  const vf high = set(89.0f), low = set(-104.0f), magic = set(12582912.0f);
  x = x > high ? high : x;
  x = x < low ? low : x;
  vf n = fma(x, set(1.44269504f), magic) - magic;
  vf r = fma(n, set(-0.693145751953125f), x);  // ln2 to 15 bits: n times it is exact
  r = fma(n, set(-1.42860682030941723e-6f), r);
  vf p = set(1.0f / 5040);
  p = fma(p, r, set(1.0f / 720));
  p = fma(p, r, set(1.0f / 120));
  p = fma(p, r, set(1.0f / 24));
  p = fma(p, r, set(1.0f / 6));
  p = fma(p, r, set(0.5f));
  p = fma(p * r, r, r) + set(1.0f);
  vi whole = __builtin_convertvector(n, vi), half_way = whole >> 1;
  return p * (vf)((half_way + 127) << 23) * (vf)((whole - half_way + 127) << 23);
}

// exp of one float, by the same steps.
KW_INLINE float exp1(float x) { return exp(set(x))[0]; }

// x / (1 + exp(-x)).
KW_INLINE vf silu(vf x) { return x / (set(1.0f) + exp(-x)); }

}  // namespace kw
