// Four doubles that travel together: the unit in which a column's entries are processed.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__clang__)
#define LS_UNROLL _Pragma("unroll")
#define LS_ALWAYS __attribute__((always_inline))
#define LS_INLINE inline LS_ALWAYS
#define LS_OUTLINE __attribute__((noinline))
#elif defined(__GNUC__)
#define LS_UNROLL _Pragma("GCC unroll 16")
#define LS_ALWAYS __attribute__((always_inline))
#define LS_INLINE inline LS_ALWAYS
#define LS_OUTLINE __attribute__((noinline))
#else
#define LS_UNROLL
#define LS_ALWAYS
#define LS_INLINE __forceinline
#define LS_OUTLINE __declspec(noinline)
#endif

// Vectors of the compiler, or where it has none, as MSVC, plain loops, which a test compiles elsewhere too.
#if defined(__GNUC__) && !defined(LOWSPARSE_PLAIN)
#define LS_VECTORS
#endif

#if defined(__GNUC__)
#define LS_PREFETCH(p) __builtin_prefetch(p, 0, 2)  // into the second-level cache
#else
#define LS_PREFETCH(p) ((void)(p))
#endif

namespace lowsparse {
namespace LOWSPARSE_ISA {

constexpr int W = 4;

#if defined(LS_VECTORS)

typedef double pack __attribute__((vector_size(W * sizeof(double))));

LS_INLINE pack splat(double x) { return pack{x, x, x, x}; }
LS_INLINE pack clip(pack a, pack bound) {
    a = a < -bound ? -bound : a;
    return a > bound ? bound : a;
}
typedef int64_t bits __attribute__((vector_size(W * sizeof(int64_t))));
LS_INLINE pack absolute(pack a) { return (pack)((bits)a & INT64_MAX); }
LS_INLINE pack quotient(pack a, pack b) { return a / b; }
LS_INLINE pack beyond(pack a, pack bound) { return absolute(a) > bound ? splat(1.0) : splat(0.0); }  // 1 or 0
LS_INLINE pack larger(pack a, pack b) { return a > b ? a : b; }
LS_INLINE pack sign(pack a) { return a > 0.0 ? splat(1.0) : a < 0.0 ? splat(-1.0) : splat(0.0); }

#else

struct pack {
    double a[W];
    double& operator[](int i) { return a[i]; }
    double operator[](int i) const { return a[i]; }
};
LS_INLINE pack splat(double x) { return pack{{x, x, x, x}}; }
#define LS_PACK_OPERATOR(op)                                  \
    LS_INLINE pack operator op(pack x, pack y) {              \
        for (int i = 0; i < W; ++i) x.a[i] = x.a[i] op y.a[i]; \
        return x;                                             \
    }                                                         \
    LS_INLINE pack& operator op##=(pack& x, pack y) { return x = x op y; }
LS_PACK_OPERATOR(+)
LS_PACK_OPERATOR(-)
LS_PACK_OPERATOR(*)
#undef LS_PACK_OPERATOR
LS_INLINE pack clip(pack a, pack bound) {
    for (int i = 0; i < W; ++i) {
        if (a.a[i] < -bound.a[i]) a.a[i] = -bound.a[i];
        if (a.a[i] > bound.a[i]) a.a[i] = bound.a[i];
    }
    return a;
}
LS_INLINE pack absolute(pack a) {
    for (int i = 0; i < W; ++i) a.a[i] = a.a[i] < 0.0 ? -a.a[i] : a.a[i];
    return a;
}
LS_INLINE pack quotient(pack a, pack b) {
    for (int i = 0; i < W; ++i) a.a[i] /= b.a[i];
    return a;
}
LS_INLINE pack larger(pack a, pack b) {
    for (int i = 0; i < W; ++i) a.a[i] = a.a[i] > b.a[i] ? a.a[i] : b.a[i];
    return a;
}
LS_INLINE pack sign(pack a) {
    for (int i = 0; i < W; ++i) a.a[i] = a.a[i] > 0.0 ? 1.0 : a.a[i] < 0.0 ? -1.0 : 0.0;
    return a;
}
LS_INLINE pack beyond(pack a, pack bound) {
    for (int i = 0; i < W; ++i) a.a[i] = absolute(a).a[i] > bound.a[i] ? 1.0 : 0.0;
    return a;
}

#endif

LS_INLINE pack load(const double* p) {
    pack v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
LS_INLINE void store(double* p, pack v) { std::memcpy(p, &v, sizeof v); }

// Entries may be stored as float; as_stored gives what a value has become once it has been stored.
#if defined(LS_VECTORS)
typedef float single_pack __attribute__((vector_size(W * sizeof(float))));
LS_INLINE pack load(const float* p) {
    single_pack v;
    std::memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, pack);
}
LS_INLINE void store(float* p, pack v) {
    const single_pack s = __builtin_convertvector(v, single_pack);
    std::memcpy(p, &s, sizeof s);
}
#else
LS_INLINE pack load(const float* p) { return pack{{p[0], p[1], p[2], p[3]}}; }
LS_INLINE void store(float* p, pack v) {
    for (int i = 0; i < W; ++i) p[i] = static_cast<float>(v[i]);
}
#endif
// The same for packs of any width: those of eight are in wide.hpp.
template <class Pack>
LS_INLINE Pack splat_as(double x) {
    return splat(x);
}
template <class Pack, class T>
LS_INLINE Pack load_as(const T* p) {
    return load(p);
}
LS_INLINE pack as_stored(pack v, const double*) { return v; }
LS_INLINE pack as_stored(pack v, const float*) {
    float stored[W];
    store(stored, v);
    return load(stored);
}

LS_INLINE double sum(pack v) { return (v[0] + v[2]) + (v[1] + v[3]); }

#if defined(LS_VECTORS)
typedef double half_pack __attribute__((vector_size(W / 2 * sizeof(double))));
LS_INLINE pack join(const double* low, const double* high) {
    half_pack a, b;
    std::memcpy(&a, low, sizeof a);
    std::memcpy(&b, high, sizeof b);
#if defined(__clang__) || __GNUC__ >= 12
    return __builtin_shufflevector(a, b, 0, 1, 2, 3);
#else
    return pack{a[0], a[1], b[0], b[1]};
#endif
}
#if defined(__clang__) || __GNUC__ >= 12
#define LS_SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define LS_SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, bits{i, j, k, l})
#endif
LS_INLINE void add_pair(double* g, double y, const double* v) {
    half_pack a, b;
    std::memcpy(&a, g, sizeof a);
    std::memcpy(&b, v, sizeof b);
    a += y * b;
    std::memcpy(g, &a, sizeof a);
}
LS_INLINE pack interleave_low(pack a, pack b) { return LS_SHUFFLE(a, b, 0, 4, 2, 6); }
LS_INLINE pack interleave_high(pack a, pack b) { return LS_SHUFFLE(a, b, 1, 5, 3, 7); }
LS_INLINE pack low_halves(pack a, pack b) { return LS_SHUFFLE(a, b, 0, 1, 4, 5); }
LS_INLINE pack high_halves(pack a, pack b) { return LS_SHUFFLE(a, b, 2, 3, 6, 7); }
#else
LS_INLINE pack join(const double* low, const double* high) { return pack{{low[0], low[1], high[0], high[1]}}; }
LS_INLINE void add_pair(double* g, double y, const double* v) {
    g[0] += y * v[0];
    g[1] += y * v[1];
}
LS_INLINE pack interleave_low(pack a, pack b) { return pack{{a[0], b[0], a[2], b[2]}}; }
LS_INLINE pack interleave_high(pack a, pack b) { return pack{{a[1], b[1], a[3], b[3]}}; }
LS_INLINE pack low_halves(pack a, pack b) { return pack{{a[0], a[1], b[0], b[1]}}; }
LS_INLINE pack high_halves(pack a, pack b) { return pack{{a[2], a[3], b[2], b[3]}}; }
#endif

// The sums of four packs.
LS_INLINE pack sums(pack a, pack b, pack c, pack d) {
    const pack ab = interleave_low(a, b) + interleave_high(a, b), cd = interleave_low(c, d) + interleave_high(c, d);
    return low_halves(ab, cd) + high_halves(ab, cd);
}

// Four rows of two, from column `at` on, become two columns of four.
LS_INLINE void transpose_pairs(const double* const* rows, int at, pack* out) {
    const pack even = join(rows[0] + at, rows[2] + at), odd = join(rows[1] + at, rows[3] + at);
    out[0] = interleave_low(even, odd);
    out[1] = interleave_high(even, odd);
}
// Four rows of four become four columns of four.
LS_INLINE void transpose(const double* const* rows, int at, pack* out) {
    transpose_pairs(rows, at, out);
    transpose_pairs(rows, at + 2, out + 2);
}

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
