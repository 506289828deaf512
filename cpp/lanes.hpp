// Some floats that travel together, a number for each of the blocks of pixels that are regressed at the same time.
#pragma once
#include <cstdint>
#include <cstring>

#include "pack.hpp"

namespace lowsparse {
namespace LOWSPARSE_ISA {

#if defined(__AVX__)
constexpr int64_t lanes = 8;
#else
constexpr int64_t lanes = 4;
#endif

#if defined(LS_VECTORS)

typedef float floats __attribute__((vector_size(lanes * sizeof(float))));
typedef int32_t floats_bits __attribute__((vector_size(lanes * sizeof(int32_t))));

LS_INLINE floats all(float x) { return floats{} + x; }
LS_INLINE floats smaller(floats a, floats b) { return a < b ? a : b; }
LS_INLINE floats larger(floats a, floats b) { return a > b ? a : b; }
LS_INLINE floats absolute(floats a) { return (floats)((floats_bits)a & INT32_MAX); }
LS_INLINE floats if_less(floats a, floats b, floats then, floats otherwise) { return a < b ? then : otherwise; }

#else

struct floats {
    float a[lanes];
    float& operator[](int i) { return a[i]; }
    float operator[](int i) const { return a[i]; }
};
#define LS_FLOATS(name, arguments, value)                      \
    LS_INLINE floats name arguments {                          \
        floats found;                                          \
        for (int i = 0; i < lanes; ++i) found.a[i] = (value); \
        return found;                                         \
    }
LS_FLOATS(all, (float x), x)
LS_FLOATS(operator+, (floats x, floats y), x.a[i] + y.a[i])
LS_FLOATS(operator-, (floats x, floats y), x.a[i] - y.a[i])
LS_FLOATS(operator*, (floats x, floats y), x.a[i] * y.a[i])
LS_FLOATS(operator/, (floats x, floats y), x.a[i] / y.a[i])
LS_FLOATS(smaller, (floats x, floats y), x.a[i] < y.a[i] ? x.a[i] : y.a[i])
LS_FLOATS(larger, (floats x, floats y), x.a[i] > y.a[i] ? x.a[i] : y.a[i])
LS_FLOATS(absolute, (floats x), x.a[i] < 0.0f ? -x.a[i] : x.a[i])
LS_FLOATS(if_less, (floats x, floats y, floats then, floats otherwise), x.a[i] < y.a[i] ? then.a[i] : otherwise.a[i])
#undef LS_FLOATS

#endif

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
