// Gaps of series: missing entries of rows at their conditional means, and weights of the neighbours of missing readings.
// The NumPy versions, with the formulas, are lowsparse/series/normal.py and bridging.py; the order of sums is another.
#pragma once
#include "kernels.hpp"
#include "normal.hpp"

#include <algorithm>
#include <cstdlib>

namespace lowsparse {
namespace LOWSPARSE_ISA {

// As LargeSystem::factor, with four pivots at a time: a row below is read and written once for them.
inline void factor_by_fours(LargeSystem& system) {
    const int r = system.r, length = system.length;
    double *A = system.A, *inverse = system.inverse;
    for (int k = 0; k < r; ++k) inverse[k] = pivot_tolerance * A[k * length + k];
    for (int first = 0; first < r; first += 4) {
        const int last = std::min(first + 4, r);
        for (int k = first; k < last; ++k) {
            const double* row = A + k * length;
            inverse[k] = row[k] > inverse[k] ? 1.0 / row[k] : 0.0;
            for (int j = k + 1; j < last; ++j) {
                double* below = A + j * length;
                const pack l = splat(row[j] * inverse[k]);
                for (int a = first; a < length; a += 4) store(below + a, load(below + a) - l * load(row + a));
            }
        }
        const double *one = A + first * length, *two = one + length, *three = two + length, *four = three + length;
        for (int j = last; j < r; ++j) {
            double* below = A + j * length;
            const pack p = splat(one[j] * inverse[first]), q = splat(two[j] * inverse[first + 1]);
            const pack s = splat(three[j] * inverse[first + 2]), t = splat(four[j] * inverse[first + 3]);
            for (int a = j / 4 * 4; a < length; a += 4)
                store(below + a, load(below + a) - p * load(one + a) - q * load(two + a) - s * load(three + a) -
                                     t * load(four + a));
        }
    }
}

// The upper triangle of A^-1, r x r: the solutions for four unit vectors at a time, in the lanes of x; of those for the
// k-th ones what is before the k-th entry is not needed.
inline void invert_upper(const LargeSystem& system, double* x, double* inverse) {
    const int r = system.r, length = system.length;
    for (int k = 0; k < r; k += 4) {
        for (int i = k; i < r; ++i) {
            pack s = splat(0.0), t = splat(0.0);
            const double* column = system.A + i;
            int j = k;
            for (; j + 1 < i; j += 2) {
                s += splat(column[j * length]) * load(x + 4 * j);
                t += splat(column[(j + 1) * length]) * load(x + 4 * j + 4);
            }
            if (j < i) s += splat(column[j * length]) * load(x + 4 * j);
            store(x + 4 * i, splat(-system.inverse[i]) * (s + t));
            if (i < k + 4) x[4 * i + i - k] = system.inverse[i];
        }
        for (int i = r - 1; i >= k; --i) {
            const double* row = system.A + i * length;
            pack s = splat(0.0), t = splat(0.0);
            int j = i + 1;
            for (; j + 1 < r; j += 2) {
                s += splat(row[j]) * load(x + 4 * j);
                t += splat(row[j + 1]) * load(x + 4 * j + 4);
            }
            if (j < r) s += splat(row[j]) * load(x + 4 * j);
            store(x + 4 * i, load(x + 4 * i) - splat(system.inverse[i]) * (s + t));
        }
        for (int q = 0; q < 4 && k + q < r; ++q)
            for (int j = k + q; j < r; ++j) inverse[(k + q) * r + j] = x[4 * j + q];
    }
}

// Rows with the same entries missing that follow each other have one factor.
inline void condition(const ConditionArgs& args, int64_t begin, int64_t end, int32_t* missing, double* memory) {
    const int n = args.n, longest = row_length(n);
    double *b = memory, *x = b + longest, *pivots = x + 4 * longest, *inverse = pivots + longest;
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
            if (count > 0) factor_by_fours(system);
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
        factor_by_fours(system);
        system.solve(b, x);
        for (int i = 0; i < count; ++i) weights[at[i]] = x[i];
    }
}

// The weighted sum of the neighbours of each entry, which count up to the bound of their series.
inline void weigh(const WeighArgs& args, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
        const int32_t* found = args.neighbours + i * args.neighbours_each;
        const double* weights = args.weights + args.system[i] * args.neighbours_each;
        const int64_t j = args.series[i];
        const double bound = args.bounds[j];
        double sum = 0.0;
        for (int k = 0; k < args.neighbours_each; ++k) {
            if (found[k] < 0) continue;
            const double number = args.R[found[k] * args.n + j];
            if (number == number) sum += weights[k] * std::min(std::max(number, -bound), bound);
        }
        args.out[i] = sum;
    }
}

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
