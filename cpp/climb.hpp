// Robust low-rank fits of small blocks, each by itself: rank 1, then the leading singular vector of the clipped residuals
// is added, and so on. The mathematics is that of ColumnSweep.climb in lowsparse/sweeps/reference.py.
#pragma once
#include "kernels.hpp"
#include "parallel.hpp"
#include "scratch.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace lowsparse {

// The same numbers as in lowsparse/sweeps/reference.py.
struct Climbing {
    static constexpr int least_passes = 4, most_passes = 40, products = 10;
    static constexpr double falling = 0.5, settled = 0.98, pace = 0.8, quick = 0.3, close = 0.05;
    static constexpr double nearly = 0.02, exact = 1e-9;
    static constexpr double narrow = 1.9, smallest = 1e-8, shrink = 0.01;
    static constexpr double low = 0.35, consistent_low = 2.2036, most = 0.7;
    static constexpr double nearby = 1.25;  // of a quantile, relative to the one after the last pass
};

// A sparse matrix of its own, by column.
struct SmallMatrix {
    int64_t m = 0, n = 0;
    std::vector<int64_t> indptr;
    std::vector<int32_t> rows;
    std::vector<double> values;

    Columns columns() const {
        return {m, n, int64_t(rows.size()), indptr.data(), rows.data(), values.data(), false};
    }

    // Rows first_row.. and columns first.. of a matrix, which have no entries elsewhere.
    static SmallMatrix of(const Columns& all, int64_t first_row, int64_t m, int64_t first, int64_t n) {
        SmallMatrix A;
        A.m = m;
        A.n = n;
        const int64_t start = all.indptr[first], end = all.indptr[first + n];
        for (int64_t j = 0; j <= n; ++j) A.indptr.push_back(all.indptr[first + j] - start);
        for (int64_t k = start; k < end; ++k) {
            A.rows.push_back(int32_t(all.rows[k] - first_row));
            A.values.push_back(all.single ? double(static_cast<const float*>(all.values)[k])
                                          : static_cast<const double*>(all.values)[k]);
        }
        return A;
    }

    SmallMatrix transposed() const {
        SmallMatrix A;
        A.m = n;
        A.n = m;
        A.indptr.assign(size_t(m + 1), 0);
        A.rows.resize(rows.size());
        A.values.resize(rows.size());
        for (const int32_t i : rows) ++A.indptr[size_t(i) + 1];
        for (int64_t i = 0; i < m; ++i) A.indptr[size_t(i) + 1] += A.indptr[size_t(i)];
        std::vector<int64_t> next(A.indptr.begin(), A.indptr.end() - 1);
        for (int64_t j = 0; j < n; ++j)
            for (int64_t k = indptr[size_t(j)]; k < indptr[size_t(j) + 1]; ++k) {
                const int64_t at = next[size_t(rows[size_t(k)])]++;
                A.rows[size_t(at)] = int32_t(j);
                A.values[size_t(at)] = values[size_t(k)];
            }
        return A;
    }
};

// A factor, a row of k numbers for each line.
struct Factor {
    int64_t lines = 0;
    int k = 0;
    std::vector<double> numbers;

    explicit Factor(int64_t lines_) : lines(lines_) {}
    double* row(int64_t i) { return numbers.data() + i * k; }
    const double* row(int64_t i) const { return numbers.data() + i * k; }

    void add_column(const std::vector<double>& column) {
        std::vector<double> wider(size_t(lines * (k + 1)));
        for (int64_t i = 0; i < lines; ++i) {
            std::copy_n(row(i), k, wider.data() + i * (k + 1));
            wider[size_t(i * (k + 1) + k)] = column[size_t(i)];
        }
        numbers.swap(wider);
        ++k;
    }

    // Columns made orthonormal, each twice against those before; R (k x k) is such that the old is the new times R. A
    // column that is a combination of others becomes zero.
    void orthonormalise(std::vector<double>& R) {
        R.assign(size_t(k) * size_t(k), 0.0);
        for (int a = 0; a < k; ++a) {
            double before = 0.0, after = 0.0;
            for (int64_t i = 0; i < lines; ++i) before += row(i)[a] * row(i)[a];
            for (int time = 0; time < 2; ++time)
                for (int b = 0; b < a; ++b) {
                    double along = 0.0;
                    for (int64_t i = 0; i < lines; ++i) along += row(i)[b] * row(i)[a];
                    for (int64_t i = 0; i < lines; ++i) row(i)[a] -= along * row(i)[b];
                    R[size_t(b * k + a)] += along;
                }
            for (int64_t i = 0; i < lines; ++i) after += row(i)[a] * row(i)[a];
            const bool kept = after > 1e-24 * before && after > std::numeric_limits<double>::min();
            const double length = kept ? std::sqrt(after) : 0.0;
            R[size_t(a * k + a)] = length;
            for (int64_t i = 0; i < lines; ++i) row(i)[a] = kept ? row(i)[a] / length : 0.0;
        }
    }

    // Each row times R^T, R upper triangular.
    void multiply(const std::vector<double>& R) {
        for (int64_t i = 0; i < lines; ++i)
            for (int a = 0; a < k; ++a) {
                double sum = 0.0;
                for (int b = a; b < k; ++b) sum += row(i)[b] * R[size_t(a * k + b)];
                row(i)[a] = sum;
            }
    }
};

class BlockClimb {
    const Kernels& kernels_;
    SmallMatrix M_, transposed_;
    double unit_;
    double size_of_low_ = 0.0, size_of_most_ = 0.0;  // quantiles of the sizes of the residuals
    Scratch padded_, memory_;
    std::vector<double> e_, R_, sizes_, near_;
    std::vector<int64_t> inside_, counts_ = std::vector<int64_t>(magnitude_bins, 0);

    const double* padded(const Factor& F, int width) {
        double* copy = padded_.at_least(size_t((F.lines + 1) * width));
        for (int64_t i = 0; i <= F.lines; ++i)
            for (int a = 0; a < width; ++a) copy[i * width + a] = i < F.lines && a < F.k ? F.row(i)[a] : 0.0;
        return copy;
    }

    // Coefficients C of the columns of A on F, reweighted from those they have.
    void regress(const SmallMatrix& A, const Factor& F, Factor& C, double c, int n_reweight) {
        const int width = kernels_.padded(F.k);
        const double infinity = std::numeric_limits<double>::infinity();
        inside_.resize(size_t(A.n));
        std::vector<double> found(C.numbers.size());
        const RegressArgs args{A.columns(), F.k, width, padded(F, width), C.numbers.data(), found.data(),
                               Loss{LossKind::cauchy, c, 1.0}, c, n_reweight, Climbing::shrink, 0.0, infinity, infinity,
                               inside_.data(), 1.0 / unit_, 0};
        kernels_.regress(args, 0, A.n, counts_.data(), memory_.at_least(size_t(kernels_.regress_memory(F.k))));
        C.numbers.swap(found);
    }

    // The number at this place of the ascending sizes. It is looked for near a guess first, among few sizes: to order
    // all of them takes as long as a regression.
    double quantile(double share, double guess) {
        const auto place = std::ptrdiff_t(share * double(sizes_.size()));
        const double low = guess / Climbing::nearby, high = guess * Climbing::nearby;
        std::ptrdiff_t below = 0, near = 0;
        near_.resize(sizes_.size());
        for (const double size : sizes_) {
            near_[size_t(near)] = size;
            const std::ptrdiff_t smaller = size < low;  // no branch: which one it would be is chance
            below += smaller;
            near += (size <= high) - smaller;
        }
        const bool found = below <= place && place < below + near;
        std::vector<double>& some = found ? near_ : sizes_;
        const auto wanted = some.begin() + (found ? place - below : place);
        std::nth_element(some.begin(), wanted, found ? some.begin() + near : some.end());
        return *wanted;
    }

    // The residuals, and their scales
    void look() {
        const int width = (U.k + 3) / 4 * 4;
        e_.resize(M_.rows.size());
        const EntriesArgs args{M_.columns(), U.k, width, padded(U, width), V.numbers.data(), true, e_.data()};
        kernels_.entries(args, 0, M_.n);
        sizes_.resize(e_.size());
        for (size_t k = 0; k < e_.size(); ++k) {
            const double size = std::fabs(e_[k]);
            sizes_[k] = size >= 0.0 ? size : std::numeric_limits<double>::infinity();  // not NaN
        }
        size_of_low_ = quantile(Climbing::low, size_of_low_);
        size_of_most_ = quantile(Climbing::most, size_of_most_);
        noise = Climbing::consistent_low * size_of_low_;
    }

    // The leading left singular vector of the residuals, clipped
    std::vector<double> leading(const double* start, double clip) const {
        std::vector<double> x(size_t(M_.m), 0.0), clipped(e_);
        for (double& e : clipped) e = std::min(std::max(-e, -clip), clip);
        const auto add_column = [&](int64_t j, double factor) {
            for (int64_t k = M_.indptr[size_t(j)]; k < M_.indptr[size_t(j) + 1]; ++k)
                x[size_t(M_.rows[size_t(k)])] += factor * clipped[size_t(k)];
        };
        for (int64_t j = 0; j < M_.n; ++j) add_column(j, start[j]);
        for (int product = 0; product < Climbing::products; ++product) {
            double length = 0.0;
            for (const double one : x) length += one * one;
            length = std::sqrt(length) + std::numeric_limits<double>::min();
            const std::vector<double> before = x;
            std::fill(x.begin(), x.end(), 0.0);
            for (int64_t j = 0; j < M_.n; ++j) {
                double along = 0.0;
                for (int64_t k = M_.indptr[size_t(j)]; k < M_.indptr[size_t(j) + 1]; ++k)
                    along += before[size_t(M_.rows[size_t(k)])] * clipped[size_t(k)];
                add_column(j, along / length);
            }
        }
        return x;
    }

  public:
    Factor U, V;
    double noise = 0.0;

    BlockClimb(const Kernels& kernels, SmallMatrix M, double unit)
        : kernels_(kernels), M_(std::move(M)), transposed_(M_.transposed()), unit_(unit), U(M_.m), V(M_.n) {
        for (const double x : M_.values) e_.push_back(-x);
    }

    // Up to this rank, or until the fit is exact; start_vectors is rank x (stride), what belongs to the block at its beginning.
    void run(int rank, const double* start_vectors, int64_t stride, Stop& stop, int worker) {
        const double smallest = Climbing::smallest * unit_;
        double c = unit_, clip = c;
        while (U.k < rank) {
            U.add_column(leading(start_vectors + U.k * stride, clip));
            U.orthonormalise(R_);
            V.add_column(std::vector<double>(size_t(M_.n), 0.0));
            std::vector<double> history;
            for (int since = 0; since < Climbing::most_passes; ++since) {
                if (stop(worker)) return;
                const int n_reweight = since < 3 ? 2 : 1;
                regress(M_, U, V, c, n_reweight);
                V.orthonormalise(R_);
                U.multiply(R_);
                regress(transposed_, V, U, c, n_reweight);
                U.orthonormalise(R_);
                V.multiply(R_);
                look();
                const double pace = size_of_most_ < Climbing::close * c ? Climbing::quick : Climbing::pace;
                c = std::max({Climbing::narrow * noise, pace * c, smallest});
                history.push_back(noise);
                if (since + 1 < Climbing::least_passes) continue;
                const bool wait = U.k == rank || noise < Climbing::nearly * unit_;
                const double limit = wait ? Climbing::settled * history[history.size() - 4]
                                          : Climbing::falling * history[history.size() - 2];
                if (!(noise < limit && c > smallest)) break;
            }
            if (noise <= Climbing::exact * unit_) return;
            clip = std::max(noise, smallest);
            c = Climbing::narrow * clip;
        }
    }
};

}  // namespace lowsparse
