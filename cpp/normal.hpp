// The r x r normal equations of one column: A = R^T D R once, then any number of right-hand sides.
#pragma once
#include "pack.hpp"

namespace lowsparse {
namespace LOWSPARSE_ISA {

// A pivot this small against its diagonal entry is rounding: the column does not see that direction. The direction is
// dropped (its coefficient is zero), so that a column with fewer than r entries still gets finite coefficients.
constexpr double pivot_tolerance = 1e-13;

constexpr int row_length(int r) { return (r + 3) / 4 * 4; }

// A: the upper triangle in rows of row_length(r) (what is left of the diagonal is not used, what is beyond r is zero),
// overwritten by D R with a unit upper triangle R. inverse[k] = 1 / D[k], or 0 for a dropped direction.
template <int Rank>
LS_INLINE void factor(double* A, double* inverse, int runtime_rank) {
    const int r = Rank ? Rank : runtime_rank, length = row_length(r);
    for (int k = 0; k < r; ++k) inverse[k] = pivot_tolerance * A[k * length + k];
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

// b (of row_length(r), zero beyond r) becomes the solution v of R^T D R v = b.
template <int Rank>
LS_INLINE void solve(const double* A, const double* inverse, double* b, int runtime_rank) {
    const int r = Rank ? Rank : runtime_rank, length = row_length(r);
    for (int k = 0; k < r; ++k) {
        const double* row = A + k * length;
        b[k] *= inverse[k];  // D^-1 at once: R^T w = b, with w = D^-1 (D w)
        const double w = b[k];
        for (int j = k + 1; j < r; ++j) b[j] -= row[j] * w;
    }
    for (int k = r - 1; k >= 0; --k) {
        const double* row = A + k * length;
        pack s = splat(0.0);
        double head = 0.0;
        int j = k + 1;
        for (; j < r && j % 4; ++j) head += row[j] * b[j];
        for (; j < length; j += 4) s += load(row + j) * load(b + j);
        b[k] -= inverse[k] * (head + sum(s));
    }
}

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
