// The r x r normal equations of one column: A = R^T D R once, then any number of right-hand sides.
#pragma once
#include "pack.hpp"

namespace lowsparse {
namespace LOWSPARSE_ISA {

// A pivot this small against its diagonal entry is rounding: the column does not see that direction. The direction is
// dropped (its coefficient is zero), so that a column with fewer than r entries still gets finite coefficients.
constexpr double pivot_tolerance = 1e-13;

constexpr int row_length(int r) { return (r + 3) / 4 * 4; }

// Small systems stay in registers. The upper triangle is packed row by row, each row followed by its right-hand side.
template <int R>
struct SmallSystem {
    static constexpr int size = R * (R + 3) / 2;
    static constexpr int row_start(int a) { return a * (R + 1) - a * (a - 1) / 2; }
    static constexpr int at(int a, int b) { return row_start(a) + b - a; }  // b = R: the right-hand side of row a

    double upper[R * (R + 3) / 2];  // unit upper triangle R
    double inverse[R];              // 1 / D, or 0 for a dropped direction

    // a: the packed Gram matrix G; A = keep G + ridge I
    LS_OUTLINE void factor(double* a, double keep, double ridge) {
        LS_UNROLL for (int k = 0; k < R; ++k) {
            LS_UNROLL for (int j = k; j < R; ++j) a[at(k, j)] *= keep;
            a[at(k, k)] += ridge;
            inverse[k] = pivot_tolerance * a[at(k, k)];
        }
        LS_UNROLL for (int k = 0; k < R; ++k) {
            const double pivot = a[at(k, k)];
            inverse[k] = pivot > inverse[k] ? 1.0 / pivot : 0.0;
            LS_UNROLL for (int j = k + 1; j < R; ++j) {
                const double l = upper[at(k, j)] = a[at(k, j)] * inverse[k];
                LS_UNROLL for (int i = j; i < R; ++i) a[at(j, i)] -= l * a[at(k, i)];
            }
        }
    }
    // v = A^-1 b; gives back v . b
    LS_OUTLINE double solve(const double* b, double* v) const {
        double x[R];
        LS_UNROLL for (int k = 0; k < R; ++k) x[k] = b[k];
        LS_UNROLL for (int k = 0; k < R; ++k)
            LS_UNROLL for (int j = k + 1; j < R; ++j) x[j] -= upper[at(k, j)] * x[k];
        LS_UNROLL for (int k = R - 1; k >= 0; --k) {
            x[k] *= inverse[k];
            LS_UNROLL for (int j = k + 1; j < R; ++j) x[k] -= upper[at(k, j)] * x[j];
        }
        double vb = 0.0;
        LS_UNROLL for (int k = 0; k < R; ++k) {
            vb += x[k] * b[k];
            v[k] = x[k];
        }
        return vb;
    }
};

// Any size: the upper triangle in rows of row_length(r); what is left of the diagonal is not used, what is beyond r is
// zero.
struct LargeSystem {
    int r, length;
    double *A, *inverse;  // D R with a unit upper triangle R; 1 / D, or 0 for a dropped direction

    LS_INLINE void factor(double keep, double ridge) {
        for (int k = 0; k < r; ++k) {
            for (int j = k; j < r; ++j) A[k * length + j] *= keep;
            A[k * length + k] += ridge;
            inverse[k] = pivot_tolerance * A[k * length + k];
        }
        for (int k = 0; k < r; ++k) {
            const double* row = A + k * length;
            inverse[k] = row[k] > inverse[k] ? 1.0 / row[k] : 0.0;
            for (int j = k + 1; j < r; ++j) {
                double* below = A + j * length;
                const pack l = splat(row[j] * inverse[k]);
                for (int a = j / 4 * 4; a < length; a += 4) store(below + a, load(below + a) - l * load(row + a));
            }
        }
    }
    // v = A^-1 b, both of row_length(r) with zeros beyond r; gives back v . b
    LS_INLINE double solve(const double* b, double* v) const {
        for (int k = 0; k < length; ++k) v[k] = b[k];
        for (int k = 0; k < r; ++k) {
            const double* row = A + k * length;
            v[k] *= inverse[k];
            for (int j = k + 1; j < r; ++j) v[j] -= row[j] * v[k];
        }
        for (int k = r - 1; k >= 0; --k) {
            const double* row = A + k * length;
            pack s = splat(0.0);
            double head = 0.0;
            int j = k + 1;
            for (; j % 4; ++j) head += row[j] * v[j];
            for (; j < length; j += 4) s += load(row + j) * load(v + j);
            v[k] -= inverse[k] * (head + sum(s));
        }
        double vb = 0.0;
        for (int k = 0; k < r; ++k) vb += v[k] * b[k];
        return vb;
    }
};

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
