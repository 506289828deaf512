// Regression by random subsets: of each column r entries at a time are fitted exactly, and the fit with the smallest
// sum of log(1 + (e/c)^2) over all its entries is kept.
#pragma once
#include "kernels.hpp"
#include "pack.hpp"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace lowsparse {
namespace LOWSPARSE_ISA {

// The rows of U that a column observes, and its values, in groups of four entries: r packs and one.
template <class T>
LS_INLINE void gather_column(const SubsetArgs& args, int64_t j, double* buffer) {
    const int64_t start = args.columns.indptr[j], count = args.columns.indptr[j + 1] - start;
    const int r = args.r, stride = 4 * (r + 1);
    const T* values = static_cast<const T*>(args.columns.values) + start;
    for (int64_t k = 0; k < (count + 3) / 4 * 4; ++k) {
        double* at = buffer + k / 4 * stride + k % 4;
        const double* row = k < count ? args.U + int64_t(args.columns.rows[start + k]) * r : nullptr;
        for (int a = 0; a < r; ++a) at[4 * a] = row ? row[a] : 0.0;
        at[4 * r] = row ? double(values[k]) : 0.0;
    }
}

// The k-th of the numbers that a seed stands for (splitmix64).
LS_INLINE uint64_t random_bits(uint64_t seed, uint64_t k) {
    uint64_t z = seed + (k + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

// The draw d of r different entries out of `count`; one that was drawn already gives way to the next.
LS_INLINE void draw_entries(uint64_t seed, int64_t d, int r, int64_t count, int64_t* places) {
    for (int k = 0; k < r; ++k) {
        const uint64_t bits = random_bits(seed, uint64_t(d) * uint64_t(r) + uint64_t(k)) >> 32;
        places[k] = int64_t((bits * uint64_t(count)) >> 32);
        for (int before = 0; before < k;)
            if (places[before] == places[k]) {
                places[k] = (places[k] + 1) % count;
                before = 0;
            } else {
                ++before;
            }
    }
}

// Coefficients that fit the r entries at these places; false if they do not determine them.
LS_INLINE bool fit_some(const double* buffer, int r, const int64_t* places, double* A, double* v) {
    const int width = r + 1, stride = 4 * width;
    for (int k = 0; k < r; ++k)
        for (int a = 0; a < width; ++a) A[k * width + a] = buffer[places[k] / 4 * stride + 4 * a + places[k] % 4];
    double largest = 0.0;
    for (int k = 0; k < r; ++k) {
        int pivot = k;
        for (int i = k + 1; i < r; ++i)
            if (std::fabs(A[i * width + k]) > std::fabs(A[pivot * width + k])) pivot = i;
        const double size = std::fabs(A[pivot * width + k]);
        largest = std::fmax(largest, size);
        if (!(size > 1e-10 * largest)) return false;
        if (pivot != k)
            for (int a = k; a < width; ++a) std::swap(A[k * width + a], A[pivot * width + a]);
        for (int i = k + 1; i < r; ++i) {
            const double l = A[i * width + k] / A[k * width + k];
            for (int a = k + 1; a < width; ++a) A[i * width + a] -= l * A[k * width + a];
        }
    }
    for (int k = r - 1; k >= 0; --k) {
        double x = A[k * width + r];
        for (int a = k + 1; a < r; ++a) x -= A[k * width + a] * v[a];
        v[k] = x / A[k * width + k];
    }
    return true;
}

LS_INLINE pack residual_of_group(const double* group, int r, const double* v) {
    pack e = splat(0.0) - load(group + 4 * r);
    for (int a = 0; a < r; ++a) e += load(group + 4 * a) * splat(v[a]);
    return e;
}

// The sum of log(1 + (e/c)^2), or something that is not less than `least` if the sum is not; eight entries to a logarithm.
LS_INLINE double loss_of_column(const double* buffer, int r, int64_t groups, const double* v, double per_c, double least) {
    const int stride = 4 * (r + 1);
    const pack scale = splat(per_c);
    double total = 0.0;
    for (int64_t g = 0; g < groups && total < least; g += 2) {
        pack product = splat(1.0);
        for (int64_t k = g; k < g + 2 && k < groups; ++k) {
            const pack x = residual_of_group(buffer + k * stride, r, v) * scale;
            product *= splat(1.0) + x * x;
        }
        const double eight = product[0] * product[1] * product[2] * product[3];
        if (eight < std::numeric_limits<double>::max()) {
            total += std::log(eight);
        } else {  // or not a number
            for (int i = 0; i < 4; ++i) total += std::log(product[i]);
        }
    }
    return total;
}

inline int64_t subset_memory(int r, int64_t longest) { return (longest + 3) / 4 * 4 * (r + 1) + int64_t(r) * (r + 2); }

template <class T>
void subset_columns(const SubsetArgs& args, int64_t begin, int64_t end, double* memory) {
    const int r = args.r, stride = 4 * (r + 1);
    double* v = memory;
    double* A = v + r;
    double* buffer = A + int64_t(r) * (r + 1);
    std::vector<int64_t> places(static_cast<size_t>(r));
    for (int64_t j = begin; j < end; ++j) {
        const int64_t count = args.columns.indptr[j + 1] - args.columns.indptr[j], groups = (count + 3) / 4;
        if (count <= r) continue;
        gather_column<T>(args, j, buffer);
        double least = std::numeric_limits<double>::infinity();
        double wanted = double(args.draws);
        for (int64_t d = 0; d < args.draws && double(d) < wanted; ++d) {
            draw_entries(args.seeds[j], d, r, count, places.data());
            if (!fit_some(buffer, r, places.data(), A, v)) continue;
            const double loss = loss_of_column(buffer, r, groups, v, 1.0 / args.c, least);
            if (!(loss < least)) continue;
            least = loss;
            for (int a = 0; a < r; ++a) args.V[j * r + a] = v[a];
            int64_t inside = 0;
            for (int64_t g = 0; g < groups; ++g) {
                const pack e = residual_of_group(buffer + g * stride, r, v);
                for (int i = 0; i < 4 && 4 * g + i < count; ++i) inside += std::fabs(e[i]) <= args.bound;
            }
            wanted = args.clean_draws * std::pow(double(count) / double(inside), r);
        }
    }
}

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
