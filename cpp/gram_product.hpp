// Y += A A^T Q for the zero-filled observed matrix A, one column at a time: w = A_j^T Q, then Y += A_j w.
#pragma once
#include "kernels.hpp"
#include "pack.hpp"

namespace lowsparse {
namespace LOWSPARSE_ISA {

// Q and Y are taken in strips of Packs * 4 columns, so that w stays in registers.
template <class T, int Packs>
void gram_product_strip(const GramProductArgs& args, int64_t begin, int64_t end, double* Y, int strip) {
    const int64_t stride = args.padded;
    const double* Q = args.Q + strip;
    Y += strip;
    for (int64_t j = begin; j < end; ++j) {
        const int64_t first = args.columns.indptr[j], count = args.columns.indptr[j + 1] - first;
        const int32_t* rows = args.columns.rows + first;
        const T* x = static_cast<const T*>(args.columns.values) + first;
        pack w[Packs];
        LS_UNROLL for (int a = 0; a < Packs; ++a) w[a] = splat(0.0);
        for (int64_t k = 0; k < count; ++k) {
            const pack xk = splat(x[k]);
            const double* q = Q + rows[k] * stride;
            LS_UNROLL for (int a = 0; a < Packs; ++a) w[a] += xk * load(q + 4 * a);
        }
        for (int64_t k = 0; k < count; ++k) {
            const pack xk = splat(x[k]);
            double* y = Y + rows[k] * stride;
            LS_UNROLL for (int a = 0; a < Packs; ++a) store(y + 4 * a, load(y + 4 * a) + xk * w[a]);
        }
    }
}

template <class T>
void gram_product_columns(const GramProductArgs& args, int64_t begin, int64_t end, double* Y) {
    int strip = 0;
    for (; strip + 16 <= args.padded; strip += 16) gram_product_strip<T, 4>(args, begin, end, Y, strip);
    switch ((args.padded - strip) / 4) {
        case 3: gram_product_strip<T, 3>(args, begin, end, Y, strip); break;
        case 2: gram_product_strip<T, 2>(args, begin, end, Y, strip); break;
        case 1: gram_product_strip<T, 1>(args, begin, end, Y, strip); break;
    }
}

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
