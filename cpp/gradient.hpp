// The end of a gradient, by rows: G = sum + U W, and G^T G, in one pass. Rows are taken four at a time and held by
// component: a pack has one entry of each.
#pragma once
#include "kernels.hpp"
#include "pack.hpp"

#include <vector>

namespace lowsparse {
namespace LOWSPARSE_ISA {

class FourRows {
    int r_;
    std::vector<double> memory_;  // r packs

  public:
    explicit FourRows(int r) : r_(r), memory_(size_t(4 * r), 0.0) {}
    LS_INLINE pack get(int c) const { return load(memory_.data() + 4 * c); }
    LS_INLINE void set(int c, pack x) { store(memory_.data() + 4 * c, x); }

    // rows of the given stride; beyond `rows` of them there are zeros
    LS_INLINE void take(const double* A, int64_t stride, int64_t rows) {
        for (int c = 0; c < r_; ++c) set(c, four(A + c, stride, rows));
    }
    LS_INLINE static pack four(const double* a, int64_t stride, int64_t rows) {
        if (rows == 4) return pack{a[0], a[stride], a[2 * stride], a[3 * stride]};
        return pack{a[0], rows > 1 ? a[stride] : 0.0, rows > 2 ? a[2 * stride] : 0.0, 0.0};
    }
    LS_INLINE void put(double* out, int64_t rows) const {
        for (int c = 0; c < r_; ++c) {
            const pack x = get(c);
            LS_UNROLL for (int i = 0; i < 4; ++i)
                if (i < rows) out[i * r_ + c] = x[i];
        }
    }
    // component b of X C
    LS_INLINE pack times(const double* C, int b) const {
        pack s = splat(0.0);
        for (int c = 0; c < r_; ++c) s += get(c) * splat(C[c * r_ + b]);
        return s;
    }
};

// The sum of X^T X over many X, its upper triangle.
class GramSum {
    int r_;
    std::vector<double> memory_;

  public:
    explicit GramSum(int r) : r_(r), memory_(size_t(2 * r * (r + 1)), 0.0) {}
    LS_INLINE void add(const FourRows& X) {
        double* s = memory_.data();
        for (int a = 0; a < r_; ++a) {
            const pack x = X.get(a);
            for (int b = a; b < r_; ++b, s += 4) store(s, load(s) + x * X.get(b));
        }
    }
    void put(double* gram) const {
        const double* s = memory_.data();
        for (int a = 0; a < r_; ++a)
            for (int b = a; b < r_; ++b, s += 4) gram[a * r_ + b] = gram[b * r_ + a] = sum(load(s));
    }
};

// body(first row, number of rows) for every four rows from begin to end-1
template <class Body>
LS_INLINE void by_fours(int64_t begin, int64_t end, Body body) {
    for (int64_t i = begin; i < end; i += 4) body(i, end - i < 4 ? end - i : 4);
}

inline void finish_gradient(const double* sum, const double* U, const double* W, int64_t begin, int64_t end, int r,
                            int padded, double* G, double* gram) {
    FourRows X(r), Y(r);
    GramSum total(r);
    by_fours(begin, end, [&](int64_t first, int64_t rows) LS_ALWAYS {
        X.take(U + first * padded, padded, rows);
        Y.take(sum + first * padded, padded, rows);
        for (int b = 0; b < r; ++b) Y.set(b, Y.get(b) + X.times(W, b));
        total.add(Y);
        Y.put(G + first * r, rows);
    });
    total.put(gram);
}

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
