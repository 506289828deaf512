// Gaps of series: missing entries of rows at their conditional means, and weights of the neighbours of missing readings.
// The NumPy versions, with the formulas, are lowsparse/series/normal.py and bridging.py; the order of sums is another.
#pragma once
#include "kernels.hpp"
#include "normal.hpp"

#include <algorithm>
#include <cstdlib>

namespace lowsparse {
namespace LOWSPARSE_ISA {

// The upper triangle of A^-1, r x r: of the solution for the k-th unit vector what is before its k-th entry is not needed.
inline void invert_upper(const LargeSystem& system, double* x, double* inverse) {
    const int r = system.r, length = system.length;
    for (int k = 0; k < r; ++k) {
        const int aligned = k / 4 * 4;
        for (int j = aligned; j < length; ++j) x[j] = 0.0;
        x[k] = 1.0;
        for (int i = k; i < r; ++i) {
            const double* row = system.A + i * length;
            const pack l = splat(x[i] *= system.inverse[i]);
            int j = i + 1;
            for (; j % 4; ++j) x[j] -= row[j] * x[i];
            for (; j < length; j += 4) store(x + j, load(x + j) - load(row + j) * l);
        }
        for (int i = r - 1; i >= k; --i) {
            const double* row = system.A + i * length;
            pack s = splat(0.0);
            double head = 0.0;
            int j = i + 1;
            for (; j % 4; ++j) head += row[j] * x[j];
            for (; j < length; j += 4) s += load(row + j) * load(x + j);
            x[i] -= system.inverse[i] * (head + sum(s));
        }
        for (int j = k; j < r; ++j) inverse[k * r + j] = x[j];
    }
}

// Rows with the same entries missing that follow each other have one factor.
inline void condition(const ConditionArgs& args, int64_t begin, int64_t end, int32_t* missing, double* memory) {
    const int n = args.n, longest = row_length(n);
    double *b = memory, *x = b + longest, *pivots = x + longest, *inverse = pivots + longest;
    LargeSystem system{0, 0, inverse + int64_t(n) * n, pivots};
    int32_t* before = missing + n;
    int alike = 0, count = -1;  // rows since the last factor, and how many entries they miss
    const auto add_up = [&] {
        if (!args.total || alike == 0 || count < 1) return;
        invert_upper(system, x, inverse);
        for (int i = 0; i < count; ++i)
            for (int k = i; k < count; ++k) {
                const double share = alike * inverse[i * count + k];
                args.total[int64_t(before[i]) * n + before[k]] += share;
                if (k > i) args.total[int64_t(before[k]) * n + before[i]] += share;
            }
    };
    for (int64_t t = begin; t < end; ++t) {
        int found = 0;
        for (int j = 0; j < n; ++j)
            if (args.missing[t * n + j]) missing[found++] = j;
        if (found != count || !std::equal(missing, missing + found, before)) {
            add_up();
            count = found;
            alike = 0;
            std::copy(missing, missing + found, before);
            system.r = count;
            system.length = row_length(count);
            for (int i = 0; i < count; ++i) {
                double* row = system.A + i * system.length;
                for (int k = i; k < count; ++k) row[k] = args.K[int64_t(before[i]) * n + before[k]];
                for (int k = count; k < system.length; ++k) row[k] = 0.0;
            }
            if (count > 0) system.factor(1.0, 0.0);
        }
        ++alike;
        if (count == 0) continue;
        for (int i = 0; i < count; ++i) b[i] = -args.pull[t * n + before[i]];
        for (int i = count; i < system.length; ++i) b[i] = 0.0;
        system.solve(b, x);
        for (int i = 0; i < count; ++i) args.X[t * n + before[i]] = x[i];
    }
    add_up();
}

inline void bridge(const BridgeArgs& args, int64_t begin, int64_t end) {
    constexpr int most = most_neighbours;
    double A[most * most], pivots[most], b[most], x[most];
    int at[most];
    for (int64_t s = begin; s < end; ++s) {
        const int32_t* found = args.neighbours + s * args.neighbours_each;
        const double* r = args.correlations + args.series[s] * args.lags;
        const auto correlation = [&](int64_t lag) { return std::abs(lag) < args.lags ? r[std::abs(lag)] : 0.0; };
        int count = 0;
        for (int k = 0; k < args.neighbours_each; ++k)
            if (found[k] >= 0) at[count++] = k;
        LargeSystem system{count, row_length(count), A, pivots};
        for (int k = 0; k < system.length; ++k) b[k] = 0.0;
        for (int i = 0; i < count; ++i) {
            double* row = A + i * system.length;
            row[i] = 1.0 + args.noise;
            for (int k = i + 1; k < count; ++k) row[k] = correlation(int64_t(found[at[i]]) - found[at[k]]);
            for (int k = count; k < system.length; ++k) row[k] = 0.0;
            b[i] = correlation(found[at[i]] - args.moments[s]);
        }
        double* weights = args.weights + s * args.neighbours_each;
        for (int k = 0; k < args.neighbours_each; ++k) weights[k] = 0.0;
        if (count == 0) continue;
        system.factor(1.0, 0.0);
        system.solve(b, x);
        for (int i = 0; i < count; ++i) weights[at[i]] = x[i];
    }
}

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
