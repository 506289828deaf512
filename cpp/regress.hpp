// Robust regression of every column on U: least squares under the weights of a loss, reweighted a few times while the
// column is in cache.
#pragma once
#include "normal.hpp"
#include "kernels.hpp"
#include "losses.hpp"
#include "panel.hpp"
#include "sweep.hpp"

#include <cmath>

namespace lowsparse {
namespace LOWSPARSE_ISA {

// Eight bins to a factor of two, from 2^-64 to 2^64.
LS_INLINE int magnitude_bin(double e) {
    e = std::fabs(e);
    int64_t pattern;
    std::memcpy(&pattern, &e, sizeof e);
    const int64_t bin = (pattern >> 49) - ((1023 - 64) << 3);
    return int(bin < 0 ? 0 : bin > magnitude_bins - 1 ? magnitude_bins - 1 : bin);
}

// A column whose weights sum up to less than this does not determine r coefficients: the fit of so few entries is no
// evidence that they are right.
LS_INLINE double enough(int r) { return 1.25 * r + 1.0; }

// What is added to the diagonal of its normal equations, for orthonormal U: hardly anything if the coefficients are
// determined twice over, else up to `shrink` times what a column with r entries has there.
LS_INLINE double support(double weight, double shrink, int r, int64_t m) {
    const double lack = std::fmin(std::fmax(2.0 - weight / r, 0.0), 1.0);
    return (1e-10 + shrink * lack * lack * lack) * r / double(m);
}

inline int64_t regress_memory(int r) { return sweep_memory(r) + panel_capacity(padded_rank(r)) + 4; }

template <class Panel, int R, class T>
void regress_columns(const RegressArgs& args, int64_t begin, int64_t end, int64_t* counts, double* memory) {
    const int r = R ? R : args.r, length = row_length(r), padded = args.padded;
    double* v = memory;
    double* residuals = v + 3 * length;
    Panel panel(residuals + panel_capacity(padded) + 4, r, panel_capacity(padded));
    for (int a = 0; a < 3 * length; ++a) v[a] = 0.0;  // the solve multiplies up to three numbers behind v by zero
    const int64_t capacity = panel_capacity(padded) / 4;  // groups, a multiple of gram_piece
    const double ratio = args.n_reweight > 1 ? std::pow(args.loss.c / args.first_c, 1.0 / (args.n_reweight - 1)) : 1.0;

    const pack bound = splat(args.bound);
    for (int64_t j = begin; j < end; ++j) {
        Column<T, false> column(args.columns, j);
        const int64_t groups = column.groups();
        const bool whole = groups <= capacity;
        for (int a = 0; a < r; ++a) v[a] = args.V_in ? args.V_in[j * r + a] : 0.0;
        pack outside = splat(0.0);
        Loss loss = args.loss;
        if (args.n_reweight > 1) loss.c = args.first_c;
        for (int pass = 0; pass < args.n_reweight; ++pass, loss.c *= ratio) {
            const typename Panel::Coefficients coefficients(v, r);
            panel.clear_normal();
            pack total = splat(0.0);
            for (int64_t first = 0; first < groups; first += gram_piece) {
                const int64_t last = groups - first < gram_piece ? groups : first + gram_piece;
                const int64_t base = first / capacity * capacity;
                if (pass == 0 && last > column.full) column.fill_last(int32_t(args.columns.m));
                column.over(first, last, base, [&](const Group<T>& group, int64_t at) LS_ALWAYS {
                    if (pass == 0 && at % 2 == 0) column.prefetch(group);
                    if (pass == 0 || !whole) panel.gather(at, args.U, group.rows, load(group.x));
                    const pack e = panel.times(at, coefficients) - panel.y(at);
                    store(residuals + 4 * at, e);
                    if (pass == args.n_reweight - 1) outside += beyond(e, bound);
                    if (pass == 0 && (at & args.sampling) == 0) {
                        const int64_t left = column.count - 4 * (at + base);
                        for (int64_t i = 0; i < 4 && i < left; ++i) ++counts[magnitude_bin(e[int(i)] * args.per_unit)];
                    }
                });
                double* w = residuals + 4 * (first - base);  // from here on
                weights(loss, w, 4 * (last - first));
                for (int64_t k = column.count - 4 * first; k < 4 * (last - first); ++k) w[k] = 0.0;
                for (int64_t k = 0; k < 4 * (last - first); k += 4) total += load(w + k);
                panel.add_weighted(first - base, last - base, residuals);
            }
            const double weight = sum(total);
            // the mean weight: a column that fits badly must not be shrunk the more for it
            const double ridge = column.count ? args.ridge * weight / double(column.count) : 0.0;
            panel.solve(1.0, ridge + support(weight, args.shrink, r, args.columns.m), v);
            double size2 = 0.0;
            for (int a = 0; a < r; ++a) size2 += v[a] * v[a];
            if (size2 > args.largest * args.largest && weight < enough(r))
                for (int a = 0; a < r; ++a) v[a] = 0.0;
        }
        for (int a = 0; a < r; ++a) args.V[j * r + a] = v[a];
        args.inside[j] = column.count - int64_t(sum(outside));
    }
}

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
