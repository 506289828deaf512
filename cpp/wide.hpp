// Eight doubles that travel together, for AVX-512: what `pack.hpp` offers for four.
#pragma once
#include "pack.hpp"

namespace lowsparse {
namespace LOWSPARSE_ISA {

typedef double wide __attribute__((vector_size(64)));
typedef int64_t wide_bits __attribute__((vector_size(64)));
typedef float wide_single __attribute__((vector_size(32)));

template <>
LS_INLINE wide splat_as<wide>(double x) {
    return x - wide{};
}
template <>
LS_INLINE wide load_as<wide>(const double* p) {
    wide v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
template <>
LS_INLINE wide load_as<wide>(const float* p) {
    wide_single v;
    std::memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, wide);
}
LS_INLINE void store(double* p, wide v) { std::memcpy(p, &v, sizeof v); }
LS_INLINE void store(float* p, wide v) {
    const wide_single s = __builtin_convertvector(v, wide_single);
    std::memcpy(p, &s, sizeof s);
}
LS_INLINE wide as_stored(wide v, const double*) { return v; }
LS_INLINE wide as_stored(wide v, const float*) {
    return __builtin_convertvector(__builtin_convertvector(v, wide_single), wide);
}
LS_INLINE wide clip(wide a, wide bound) {
    a = a < -bound ? -bound : a;
    return a > bound ? bound : a;
}
LS_INLINE wide absolute(wide a) { return (wide)((wide_bits)a & INT64_MAX); }

LS_INLINE pack folded(wide v) {
    return __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
}
LS_INLINE double sum(wide v) { return sum(folded(v)); }
LS_INLINE pack sums(wide a, wide b, wide c, wide d) { return sums(folded(a), folded(b), folded(c), folded(d)); }

LS_INLINE wide interleave_low(wide a, wide b) { return __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14); }
LS_INLINE wide interleave_high(wide a, wide b) { return __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15); }
LS_INLINE wide low_halves(wide a, wide b) { return __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13); }
LS_INLINE wide high_halves(wide a, wide b) { return __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15); }
LS_INLINE wide join(pack low, pack high) { return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7); }

// Eight rows of two, from column `at` on, become two columns of eight.
LS_INLINE void transpose_pairs(const double* const* rows, int at, wide* out) {
    const wide even = join(join(rows[0] + at, rows[2] + at), join(rows[4] + at, rows[6] + at));
    const wide odd = join(join(rows[1] + at, rows[3] + at), join(rows[5] + at, rows[7] + at));
    out[0] = interleave_low(even, odd);
    out[1] = interleave_high(even, odd);
}
// Eight rows of four become four columns of eight.
LS_INLINE void transpose(const double* const* rows, int at, wide* out) {
    wide pair[4];
    LS_UNROLL for (int i = 0; i < 4; ++i) pair[i] = join(load(rows[i] + at), load(rows[i + 4] + at));
    const wide even01 = interleave_low(pair[0], pair[1]), even23 = interleave_low(pair[2], pair[3]);
    const wide odd01 = interleave_high(pair[0], pair[1]), odd23 = interleave_high(pair[2], pair[3]);
    out[0] = low_halves(even01, even23);
    out[1] = low_halves(odd01, odd23);
    out[2] = high_halves(even01, even23);
    out[3] = high_halves(odd01, odd23);
}

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
