// The Python face of the compiled core: one object that holds the columns and the scratch memory of a solve.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "climb.hpp"
#include "instruction_sets.hpp"
#include "interpreter.hpp"
#include "kernels.hpp"
#include "medians.hpp"
#include "nonzeros.hpp"
#include "parallel.hpp"
#include "scratch.hpp"
#include "video.hpp"

namespace nb = nanobind;
using namespace lowsparse;

namespace {

using Input64 = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Input32 = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Entries = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using EntriesOut = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Values = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ValuesOut = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using MatrixOut = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Mask = nb::ndarray<const bool, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Neighbours = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Bits = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using BitsOut = nb::ndarray<uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Array = nb::ndarray<nb::numpy, double, nb::ndim<2>>;
using Counts = nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>;

const Kernels& kernels_for(const std::string& isa) {
    check_instruction_set(isa);
#if defined(LOWSPARSE_HAS_V3)
    if (isa == "v3") return v3::kernels;
#endif
#if defined(LOWSPARSE_HAS_V4)
    static const Kernels wide = [] {
        Kernels kernels = v3::kernels;
        kernels.isa = "v4";
        kernels.sweep = v4::wide_sweep;
        return kernels;
    }();
    if (isa == "v4") return wide;
#endif
    return baseline::kernels;
}

int64_t whole_lines(int64_t doubles) { return (doubles + 7) / 8 * 8; }
int64_t whole_packs(int64_t doubles) { return (doubles + 3) / 4 * 4; }

double total(const std::vector<double>& values) {
    double sum = 0.0;
    for (const double value : values) sum += value;
    return sum;
}

// Kernels take starts and rows as they are: those of the columns from `begin` to `end` must lie in the matrix.
void check_compressed(int64_t m, const Input64& indptr, const Input32& rows, int64_t begin, int64_t end) {
    const int64_t nnz = int64_t(rows.shape(0)), first = indptr.data()[begin], last = indptr.data()[end];
    bool good = first >= 0 && last <= nnz;
    for (int64_t j = begin; j < end; ++j) good = good && indptr.data()[j] <= indptr.data()[j + 1];
    uint32_t outside = 0;  // its highest bit is set by a row below 0, or above m - 1
    for (int64_t k = first; good && k < last; ++k) {
        const uint32_t row = uint32_t(rows.data()[k]);
        outside |= row | (uint32_t(m - 1) - row);
    }
    if (!good || outside >> 31) throw std::invalid_argument("indptr must ascend, and rows must lie in the matrix");
}

void check_size(int64_t m, int64_t n) {
    const int64_t most = std::numeric_limits<int32_t>::max();
    if (m < 1 || n < 1 || m > most || n > most) throw std::invalid_argument("a matrix has 1 to 2**31 - 1 rows and columns");
}

Loss loss_of(int kind, double c, double p) {
    if (kind < 0 || kind > int(LossKind::power) || !(c > 0) || !(p > 0)) throw std::invalid_argument("no such loss");
    return {LossKind(kind), c, p};
}

// No more threads than blocks, and one at least.
int useful_threads(int threads, int64_t blocks) {
    if (threads < 1) throw std::invalid_argument("threads must be at least 1");
    return int(std::max<int64_t>(1, std::min<int64_t>(threads, blocks)));
}

Array new_array(size_t rows, size_t cols) {
    double* data = new double[rows * cols];
    return Array(data, {rows, cols}, nb::capsule(data, [](void* p) noexcept { delete[] static_cast<double*>(p); }));
}

Counts new_counts(size_t count) {
    int64_t* data = new int64_t[count];
    return Counts(data, {count}, nb::capsule(data, [](void* p) noexcept { delete[] static_cast<int64_t*>(p); }));
}

class ColumnSweep {
    const Kernels& kernels_;
    Input64 indptr_;
    Input32 rows_;
    Entries values_;
    Columns columns_;
    Scratch padded_, partial_, workers_;

    // Every block has a gradient of its own (m x padded): as many blocks as keep those to a twelfth of the data or less,
    // at least four where there is enough to share. No more threads run than there are blocks.
    std::vector<int64_t> blocks(int64_t padded) const {
        int64_t count = columns_.nnz < 20000 ? 1 : 4;
        while (count < 64 && 2 * count * 6 * columns_.m * padded <= columns_.nnz) count *= 2;
        return split_columns(columns_.indptr, columns_.n, columns_.nnz, count);
    }

    // work(worker, block, begin, end) over each block's columns, in slices short enough to stop between; the part of
    // memory a block adds to is cleared first. Parts are whole cache lines: two blocks never write to the same one.
    static constexpr int64_t entries_at_once = 100000;
    template <class Work>
    Phase over_columns(const std::vector<int64_t>& bounds, double* parts, int64_t part, Stop& stop, Work work) const {
        return {int64_t(bounds.size()) - 1, [=, this_ = this, &bounds, &stop](int worker, int64_t b) {
                    std::memset(parts + b * part, 0, sizeof(double) * size_t(part));
                    const int64_t* indptr = this_->columns_.indptr;
                    for (int64_t begin = bounds[b]; begin < bounds[b + 1] && !stop(worker);) {
                        int64_t end = begin + 1;
                        while (end < bounds[b + 1] && indptr[end + 1] - indptr[begin] < entries_at_once) ++end;
                        work(worker, b, begin, end);
                        begin = end;
                    }
                }};
    }

    static constexpr int64_t row_piece = 512;  // rows summed up at once
    int64_t row_pieces() const { return (columns_.m + row_piece - 1) / row_piece; }

    // Adds the blocks' parts, which begin with m + 1 rows of `padded`, to the first of them, in the blocks' order;
    // finish(piece, first row, last row) follows for each piece of rows.
    template <class Finish>
    Phase add_parts(double* parts, int64_t part, int64_t blocks, int64_t padded, Finish finish) const {
        const int64_t m = columns_.m;
        return {row_pieces(), [=](int, int64_t piece) {
                    const int64_t first = piece * row_piece, last = std::min(m, first + row_piece);
                    double* sum = parts + first * padded;
                    for (int64_t other = 1; other < blocks; ++other)
                        for (int64_t k = 0; k < (last - first) * padded; ++k) sum[k] += sum[other * part + k];
                    finish(piece, first, last);
                }};
    }

    void run(const std::vector<Phase>& phases, int threads, Stop& stop) const {
        {
            const Interpreter::Without unlocked;
            run_phases(phases, threads, stop);
        }
        if (stop.was_interrupted) throw nb::python_error();
    }

    // A copy of U with its rows padded by zeros and a row of zeros behind the last, to be made by pieces of rows.
    Phase padded_copy(const Matrix& U, int64_t padded, const double** place) {
        const int64_t m = columns_.m, r = int64_t(U.shape(1));
        double* copy = padded_.at_least(size_t((m + 1) * padded));
        *place = copy;
        return {row_pieces(), [=, from = U.data()](int, int64_t piece) {
                    const int64_t first = piece * row_piece, last = std::min(m, first + row_piece);
                    for (int64_t i = first; i < last; ++i)
                        for (int64_t a = 0; a < padded; ++a) copy[i * padded + a] = a < r ? from[i * r + a] : 0.0;
                    if (last == m) std::memset(copy + m * padded, 0, sizeof(double) * size_t(padded));
                }};
    }

    void check_columns(const Matrix& V, int64_t r) const {
        if (int64_t(V.shape(0)) != columns_.n || int64_t(V.shape(1)) != r || r < 1)
            throw std::invalid_argument("V has the wrong shape");
    }
    template <class T>
    void check_values(const T& y) const {
        if (int64_t(y.shape(0)) != columns_.nnz) throw std::invalid_argument("there must be one value per entry");
    }
    void check_rows(const Matrix& U) const {
        if (int64_t(U.shape(0)) != columns_.m || U.shape(1) < 1) throw std::invalid_argument("U has the wrong shape");
    }
    template <class T>
    void check_entries(const T& S) const {
        if (int64_t(S.shape(0)) != columns_.nnz || S.dtype() != values_.dtype())
            throw std::invalid_argument("S must have one value per entry, of the type of the entries");
    }

    SweepArgs sweep_args(const Matrix& U, const std::optional<Matrix>& V_previous, const std::optional<Matrix>& rotation,
                         double gamma, double t_S, double lambda2, int rule) const {
        check_rows(U);
        if (rule < 0 || rule > int(Rule::amanpg)) throw std::invalid_argument("no such rule");
        const int64_t r = int64_t(U.shape(1));
        SweepArgs args{columns_, int(r),  kernels_.padded(int(r)), nullptr, nullptr, nullptr, nullptr,
                       nullptr,  nullptr, gamma,                   t_S,     lambda2, Rule(rule)};
        if (V_previous && rotation) {
            check_columns(*V_previous, r);
            if (int64_t(rotation->shape(0)) != r || int64_t(rotation->shape(1)) != r)
                throw std::invalid_argument("rotation has the wrong shape");
            args.V_previous = V_previous->data();
            args.rotation = rotation->data();
        }
        return args;
    }

    // The sweep of all columns.
    nb::tuple swept(const Matrix& U, SweepArgs& args, int threads) {
        const auto bounds = blocks(args.padded);
        const int64_t m = columns_.m, r = args.r, padded = args.padded;
        const Phase copy = padded_copy(U, padded, &args.U);
        const bool moves = args.rule != Rule::fit;
        Array V = new_array(size_t(columns_.n), size_t(r));
        Array G = new_array(moves ? size_t(m) : 0, size_t(r));
        Array GtG = new_array(size_t(r), size_t(r));
        Array VVt = new_array(size_t(r), size_t(r));
        args.V = V.data();

        const int64_t count = int64_t(bounds.size()) - 1;
        threads = useful_threads(threads, count);
        // A block's part of memory: its gradient, then its V V^T.
        const int64_t length = kernels_.row_length(int(r)), gradient = moves ? (m + 1) * padded : 0;
        const int64_t part = whole_lines(gradient + r * length);
        double* parts = partial_.at_least(size_t(count * part));
        const int64_t memory = whole_lines(kernels_.sweep_memory(int(r)));
        double* scratch = workers_.at_least(size_t(memory * threads));
        struct alignas(64) BlockSums : SweepSums {};
        std::vector<BlockSums> sums(static_cast<size_t>(count));
        SweepSums all;
        std::vector<double> weights(static_cast<size_t>(r * r));  // lambda2 V V^T
        std::fill(VVt.data(), VVt.data() + r * r, 0.0);
        std::fill(GtG.data(), GtG.data() + r * r, 0.0);
        Stop stop(Interpreter::signalled);
        const auto work = [&](int worker, int64_t b, int64_t begin, int64_t end) {
            kernels_.sweep(args, begin, end, parts + b * part, parts + b * part + gradient, sums[size_t(b)],
                           scratch + worker * memory);
        };
        Phase columns = over_columns(bounds, parts, part, stop, work);
        columns.then = [&] {
            for (int64_t b = 0; b < count; ++b) {
                const SweepSums& s = sums[size_t(b)];
                all.smooth_in += s.smooth_in;
                all.smooth_out += s.smooth_out;
                all.l1 += s.l1;
                all.dS2 += s.dS2;
                all.dV2 += s.dV2;
                for (int64_t a = 0; a < r; ++a)
                    for (int64_t c = 0; c < r; ++c) VVt.data()[a * r + c] += parts[b * part + gradient + a * length + c];
            }
            for (int64_t k = 0; k < r * r; ++k) weights[size_t(k)] = args.lambda2 * VVt.data()[k];
        };
        std::vector<Phase> phases{copy, columns};
        std::vector<double> grams;
        if (moves) {
            grams.resize(size_t(row_pieces() * r * r));
            Phase rows = add_parts(parts, part, count, padded, [&](int64_t piece, int64_t first, int64_t last) {
                kernels_.finish_gradient(parts, args.U, weights.data(), first, last, int(r), int(padded), G.data(),
                                         grams.data() + piece * r * r);
            });
            rows.then = [&] {
                for (int64_t k = 0; k < row_pieces() * r * r; ++k) GtG.data()[k % (r * r)] += grams[size_t(k)];
            };
            phases.push_back(rows);
        }
        run(phases, threads, stop);
        return nb::make_tuple(V, G, GtG, VVt, nb::make_tuple(all.smooth_in, all.smooth_out, all.l1, all.dS2, all.dV2));
    }

  public:
    ColumnSweep(int64_t m, Input64 indptr, Input32 rows, Entries values, const std::string& isa)
        : kernels_(kernels_for(isa)), indptr_(indptr), rows_(rows), values_(values) {
        const bool single = values.dtype() == nb::dtype<float>();
        if (!single && values.dtype() != nb::dtype<double>()) throw std::invalid_argument("values must be float");
        if (indptr.shape(0) < 1 || rows.shape(0) != values.shape(0) ||
            indptr.data()[indptr.shape(0) - 1] != int64_t(rows.shape(0)))
            throw std::invalid_argument("indptr, rows and values do not fit together");
        check_size(m, int64_t(indptr.shape(0)) - 1);
        check_compressed(m, indptr, rows, 0, int64_t(indptr.shape(0)) - 1);
        columns_ = {m, int64_t(indptr.shape(0)) - 1, int64_t(rows.shape(0)), indptr.data(), rows.data(), values.data(),
                    single};
    }

    // (V^T, G, G^T G, V V^T, sums), where G is the whole gradient.
    nb::tuple sweep(Matrix U, Entries S, nb::object S_out, std::optional<Matrix> V_previous,
                    std::optional<Matrix> rotation, double gamma, double t_S, double lambda2, int rule, int threads) {
        check_entries(S);
        SweepArgs args = sweep_args(U, V_previous, rotation, gamma, t_S, lambda2, rule);
        args.S = S.data();
        EntriesOut out;
        if (args.rule != Rule::fit) {
            out = nb::cast<EntriesOut>(S_out, false);  // a converted copy would be lost
            check_entries(out);
            if (out.data() == S.data()) throw std::invalid_argument("S_out must not be S");
            args.S_out = out.data();
        }
        return swept(U, args, threads);
    }

    // Columns in pieces of about the same work, for kernels without sums over the rows.
    std::vector<int64_t> pieces() const {
        const int64_t count = std::max<int64_t>(1, std::min<int64_t>(columns_.n, columns_.nnz / 2500));
        return split_columns(columns_.indptr, columns_.n, columns_.nnz, count);
    }

    // (V^T; how many residuals of each column are within `bound` before the last fit; and how many there are of each
    // magnitude, in multiples of unit, before the first)
    nb::tuple regress(Matrix U, nb::object V_in, int kind, double first_c, double c, double p, int n_reweight,
                      double shrink, double ridge, double largest, double bound, double unit, int64_t total_entries,
                      int threads) {
        check_rows(U);
        const Loss loss = loss_of(kind, c, p);
        if (!(first_c > 0 && unit > 0) || n_reweight < 1 || !(ridge >= 0))
            throw std::invalid_argument("first_c, unit and n_reweight must be positive, and ridge not negative");
        const int64_t r = int64_t(U.shape(1)), padded = kernels_.padded(int(r));
        RegressArgs args{columns_, int(r), int(padded), nullptr, nullptr, nullptr, loss, first_c, n_reweight,
                         shrink, ridge, largest, bound, nullptr, 1.0 / unit, 0};
        Matrix given;
        if (!V_in.is_none()) {
            given = nb::cast<Matrix>(V_in);
            check_columns(given, r);
            args.V_in = given.data();
        }
        const int64_t total = total_entries > 0 ? total_entries : columns_.nnz;
        while (total / (args.sampling + 1) > 50000) args.sampling = 2 * args.sampling + 1;
        Array V = new_array(size_t(columns_.n), size_t(r));
        args.V = V.data();
        Counts inside = new_counts(size_t(columns_.n));
        args.inside = inside.data();
        const Phase copy = padded_copy(U, padded, &args.U);
        const auto bounds = pieces();
        const int64_t count = int64_t(bounds.size()) - 1;
        threads = useful_threads(threads, count);
        const int64_t memory = whole_lines(kernels_.regress_memory(int(r)));
        double* scratch = workers_.at_least(size_t(memory * threads));
        std::vector<std::vector<int64_t>> counts(static_cast<size_t>(threads), std::vector<int64_t>(magnitude_bins, 0));
        Stop stop(Interpreter::signalled);
        const Phase columns{count, [&](int worker, int64_t b) {
                                kernels_.regress(args, bounds[size_t(b)], bounds[size_t(b) + 1],
                                                 counts[size_t(worker)].data(), scratch + worker * memory);
                            }};
        run({copy, columns}, threads, stop);
        Counts summed = new_counts(magnitude_bins);
        std::fill_n(summed.data(), magnitude_bins, int64_t(0));
        for (const auto& part : counts)
            for (int k = 0; k < magnitude_bins; ++k) summed.data()[k] += part[size_t(k)];
        return nb::make_tuple(V, inside, summed);
    }

    // work(piece, begin, end) over all columns, by pieces
    template <class Work>
    void each_piece(const std::vector<Phase>& before, const std::vector<int64_t>& bounds, int threads, Work work) const {
        Stop stop(Interpreter::signalled);
        std::vector<Phase> phases = before;
        phases.push_back({int64_t(bounds.size()) - 1,
                          [&](int, int64_t b) { work(b, bounds[size_t(b)], bounds[size_t(b) + 1]); }});
        run(phases, useful_threads(threads, int64_t(bounds.size()) - 1), stop);
    }

    // The sum over all columns of what work(block, begin, end, part) adds to a part of m rows: m x width.
    template <class Work>
    Array sum_of_blocks(const std::vector<Phase>& before, const std::vector<int64_t>& bounds, int64_t width, int threads,
                        Work work) {
        const int64_t m = columns_.m, padded = whole_packs(width), count = int64_t(bounds.size()) - 1;
        const int64_t part = whole_lines((m + 1) * padded);
        double* parts = partial_.at_least(size_t(count * part));
        Array sum = new_array(size_t(m), size_t(width));
        Stop stop(Interpreter::signalled);
        std::vector<Phase> phases = before;
        phases.push_back(over_columns(bounds, parts, part, stop, [&](int, int64_t b, int64_t begin, int64_t end) {
            work(b, begin, end, parts + b * part);
        }));
        phases.push_back(add_parts(parts, part, count, padded, [&](int64_t, int64_t first, int64_t last) {
            for (int64_t i = first; i < last; ++i)
                for (int64_t a = 0; a < width; ++a) sum.data()[i * width + a] = parts[i * padded + a];
        }));
        run(phases, useful_threads(threads, count), stop);
        return sum;
    }

    // U V on the entries, less the values if asked
    Array entries(Matrix U, Matrix V, bool minus_values, int threads) {
        check_rows(U);
        check_columns(V, int64_t(U.shape(1)));
        Array out = new_array(1, size_t(columns_.nnz));
        const int64_t r = int64_t(U.shape(1)), padded = whole_packs(r);
        EntriesArgs args{columns_, int(r), int(padded), nullptr, V.data(), minus_values, out.data()};
        const Phase copy = padded_copy(U, padded, &args.U);
        each_piece({copy}, pieces(), threads, [&](int64_t, int64_t begin, int64_t end) { kernels_.entries(args, begin, end); });
        return out;
    }

    // Sp(y) V
    Array product(Values y, Matrix V, int threads) {
        check_values(y);
        const int64_t r = int64_t(V.shape(1)), padded = whole_packs(r);
        check_columns(V, r);
        const ProductArgs args{columns_, int(r), int(padded), y.data(), V.data()};
        return sum_of_blocks({}, blocks(padded), r, threads, [&](int64_t, int64_t begin, int64_t end, double* part) {
            kernels_.product(args, begin, end, part);
        });
    }

    // Sp(y)^T U
    Array product_transposed(Values y, Matrix U, int threads) {
        check_values(y);
        check_rows(U);
        const int64_t r = int64_t(U.shape(1)), padded = whole_packs(r);
        ProductArgs args{columns_, int(r), int(padded), y.data(), nullptr};
        const Phase copy = padded_copy(U, padded, &args.factor);
        Array out = new_array(size_t(columns_.n), size_t(r));
        each_piece({copy}, pieces(), threads, [&](int64_t, int64_t begin, int64_t end) {
            kernels_.product_transposed(args, begin, end, out.data());
        });
        return out;
    }

    // (sum of the loss, derivative by U, derivative by V)
    nb::tuple gradient(Matrix U, Matrix V, int kind, double c, double p, int threads) {
        check_rows(U);
        const int64_t r = int64_t(U.shape(1)), padded = whole_packs(r);
        check_columns(V, r);
        Array by_column = new_array(size_t(columns_.n), size_t(r));
        GradientArgs args{columns_, loss_of(kind, c, p), int(r), int(padded), nullptr, V.data(), by_column.data()};
        const Phase copy = padded_copy(U, padded, &args.U);
        const auto bounds = blocks(padded);
        std::vector<double> values(bounds.size(), 0.0);
        Array by_row = sum_of_blocks({copy}, bounds, r, threads, [&](int64_t b, int64_t begin, int64_t end, double* part) {
            values[size_t(b)] += kernels_.gradient(args, begin, end, part);
        });
        return nb::make_tuple(total(values), by_row, by_column);
    }

    // The sum of w(e) d^2, d = U B
    double curvature(Matrix U, Matrix V, Matrix B, int kind, double c, double p, int threads) {
        check_rows(U);
        const int64_t r = int64_t(U.shape(1)), padded = whole_packs(r);
        check_columns(V, r);
        check_columns(B, r);
        CurvatureArgs args{columns_, loss_of(kind, c, p), int(r), int(padded), nullptr, V.data(), B.data()};
        const Phase copy = padded_copy(U, padded, &args.U);
        const auto bounds = pieces();
        std::vector<double> values(bounds.size(), 0.0);
        each_piece({copy}, bounds, threads, [&](int64_t b, int64_t begin, int64_t end) {
            values[size_t(b)] = kernels_.curvature(args, begin, end);
        });
        return total(values);
    }

    // (V, Sp(w_out) V, |e|_1, |gap|^2)
    nb::tuple ascend(Matrix U, Matrix C, Values multiplier, Values w, ValuesOut multiplier_out, ValuesOut w_out,
                     double beta, double next_beta, int threads) {
        check_rows(U);
        const int64_t r = int64_t(U.shape(1)), padded = whole_packs(r);
        check_columns(C, r);
        check_values(multiplier);
        check_values(w);
        check_values(multiplier_out);
        check_values(w_out);
        if (multiplier.data() == multiplier_out.data() || w.data() == w_out.data())
            throw std::invalid_argument("what is read must not be written to");
        if (!(beta > 0 && next_beta > 0)) throw std::invalid_argument("beta must be positive");
        Array V = new_array(size_t(columns_.n), size_t(r));
        AscendArgs args{columns_, int(r), int(padded), nullptr, C.data(), V.data(), multiplier.data(), w.data(),
                        multiplier_out.data(), w_out.data(), beta, next_beta};
        const Phase copy = padded_copy(U, padded, &args.U);
        const auto bounds = blocks(padded);
        std::vector<AscendSums> sums(bounds.size());
        Array G = sum_of_blocks({copy}, bounds, r, threads, [&](int64_t b, int64_t begin, int64_t end, double* part) {
            kernels_.ascend(args, begin, end, part, sums[size_t(b)]);
        });
        AscendSums all;
        for (const AscendSums& s : sums) {
            all.l1 += s.l1;
            all.gap2 += s.gap2;
        }
        return nb::make_tuple(V, G, all.l1, all.gap2);
    }

    // U_j^T U_j for each column, n x (r r)
    Array grams(Matrix U, int threads) {
        check_rows(U);
        const int64_t r = int64_t(U.shape(1)), padded = whole_packs(r);
        Array out = new_array(size_t(columns_.n), size_t(r * r));
        GramsArgs args{columns_, int(r), int(padded), nullptr, out.data()};
        const Phase copy = padded_copy(U, padded, &args.U);
        each_piece({copy}, pieces(), threads, [&](int64_t, int64_t begin, int64_t end) { kernels_.grams(args, begin, end); });
        return out;
    }

    // Of each column the best fit to r of its entries; a column without one keeps its V.
    Array subsets(Matrix U, Matrix V_in, Bits seeds, int64_t max_draws, double c, double bound, double clean_draws,
                  int threads) {
        check_rows(U);
        const int64_t r = int64_t(U.shape(1)), n = columns_.n;
        check_columns(V_in, r);
        if (int64_t(seeds.shape(0)) != n) throw std::invalid_argument("there must be one seed per column");
        if (!(c > 0)) throw std::invalid_argument("c must be positive");
        Array V = new_array(size_t(n), size_t(r));
        std::copy_n(V_in.data(), n * r, V.data());
        const SubsetArgs args{columns_, int(r), U.data(), seeds.data(), max_draws, c, bound, clean_draws, V.data()};
        int64_t longest = 0;
        for (int64_t j = 0; j < n; ++j) longest = std::max(longest, columns_.indptr[j + 1] - columns_.indptr[j]);
        const auto bounds = pieces();
        const int64_t count = int64_t(bounds.size()) - 1, memory = whole_lines(kernels_.subset_memory(int(r), longest));
        threads = useful_threads(threads, count);
        double* scratch = workers_.at_least(size_t(memory * threads));
        Stop stop(Interpreter::signalled);
        run({{count, [&](int worker, int64_t b) {
                  kernels_.subsets(args, bounds[size_t(b)], bounds[size_t(b) + 1], scratch + worker * memory);
              }}},
            threads, stop);
        return V;
    }

    // Blocks of rows and columns, which have no entries elsewhere, each fitted up to the rank or until it is exact: (U, V,
    // zero beyond the rank of a block; the noise of each; its rank)
    nb::tuple climb(Input64 row_starts, Input64 column_starts, Matrix start_vectors, double unit, int threads) {
        const int64_t count = int64_t(row_starts.shape(0)) - 1, m = columns_.m, n = columns_.n;
        const int64_t rank = int64_t(start_vectors.shape(0));
        if (count < 1 || column_starts.shape(0) != row_starts.shape(0) || int64_t(start_vectors.shape(1)) != n ||
            rank < 1 || !(unit > 0))
            throw std::invalid_argument("the arrays do not fit together");
        const int64_t *of_rows = row_starts.data(), *of_columns = column_starts.data();
        if (of_rows[0] != 0 || of_columns[0] != 0 || of_rows[count] != m || of_columns[count] != n)
            throw std::invalid_argument("the blocks must have all rows and columns");
        for (int64_t b = 0; b < count; ++b) {
            if (of_rows[b + 1] <= of_rows[b] || of_columns[b + 1] <= of_columns[b])
                throw std::invalid_argument("a block must have rows and columns");
            const int64_t first = columns_.indptr[of_columns[b]], end = columns_.indptr[of_columns[b + 1]];
            if (end <= first) throw std::invalid_argument("a block must have entries");
            for (int64_t k = first; k < end; ++k)
                if (columns_.rows[k] < of_rows[b] || columns_.rows[k] >= of_rows[b + 1])
                    throw std::invalid_argument("a block has entries in rows of another");
        }
        Array U = new_array(size_t(m), size_t(rank)), V = new_array(size_t(n), size_t(rank));
        Array noise = new_array(1, size_t(count));
        Counts ranks = new_counts(size_t(count));
        std::fill_n(U.data(), m * rank, 0.0);
        std::fill_n(V.data(), n * rank, 0.0);
        Stop stop(Interpreter::signalled);
        std::vector<int64_t> order(static_cast<size_t>(count));  // the largest first: they take longest
        std::iota(order.begin(), order.end(), int64_t(0));
        const auto size = [&](int64_t b) { return columns_.indptr[of_columns[b + 1]] - columns_.indptr[of_columns[b]]; };
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return size(a) > size(b); });
        const auto one = [&](int worker, int64_t place) {
            const int64_t b = order[size_t(place)], row = of_rows[b], column = of_columns[b];
            BlockClimb block(kernels_, SmallMatrix::of(columns_, row, of_rows[b + 1] - row, column, of_columns[b + 1] - column),
                             unit);
            block.run(int(rank), start_vectors.data() + column, n, stop, worker);
            for (int64_t i = 0; i < block.U.lines; ++i) std::copy_n(block.U.row(i), block.U.k, U.data() + (row + i) * rank);
            for (int64_t j = 0; j < block.V.lines; ++j)
                std::copy_n(block.V.row(j), block.V.k, V.data() + (column + j) * rank);
            noise.data()[b] = block.noise;
            ranks.data()[b] = block.U.k;
        };
        run({{count, one}}, useful_threads(threads, count), stop);
        return nb::make_tuple(U, V, noise, ranks);
    }

    // The k-th largest |y| of each column
    Array kth_largest(Values y, Input64 k, int threads) {
        check_values(y);
        if (int64_t(k.shape(0)) != columns_.n) throw std::invalid_argument("k must have one number per column");
        Array out = new_array(1, size_t(columns_.n));
        each_piece({}, pieces(), threads, [&](int64_t, int64_t begin, int64_t end) {
            std::vector<double> sizes;
            for (int64_t j = begin; j < end; ++j) {
                const int64_t first = columns_.indptr[j], count = columns_.indptr[j + 1] - first, which = k.data()[j];
                if (which < 1 || which > count) {
                    out.data()[j] = which < 1 ? std::numeric_limits<double>::infinity() : 0.0;
                    continue;
                }
                sizes.resize(size_t(count));
                for (int64_t i = 0; i < count; ++i) {
                    const double size = std::fabs(y.data()[first + i]);
                    sizes[size_t(i)] = size >= 0.0 ? size : std::numeric_limits<double>::infinity();  // not NaN
                }
                std::nth_element(sizes.begin(), sizes.begin() + (which - 1), sizes.end(), std::greater<double>());
                out.data()[j] = sizes[size_t(which - 1)];
            }
        });
        return out;
    }

    // A A^T Q for the zero-filled matrix A.
    Array gram_product(Matrix Q, int threads) {
        check_rows(Q);
        const int64_t width = int64_t(Q.shape(1)), padded = whole_packs(width);
        GramProductArgs args{columns_, int(padded), nullptr};
        const Phase copy = padded_copy(Q, padded, &args.Q);
        return sum_of_blocks({copy}, blocks(padded), width, threads,
                             [&](int64_t, int64_t begin, int64_t end, double* part) {
                                 kernels_.gram_product(args, begin, end, part);
                             });
    }
};

// body(begin, end) over 0..count-1 without the lock of the interpreter, with a look at Ctrl-C after each piece.
template <class Body>
void in_pieces(int64_t count, int64_t at_once, Body body) {
    for (int64_t first = 0; first < count; first += at_once) {
        {
            const Interpreter::Without unlocked;
            body(first, std::min(first + at_once, count));
        }
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
}

// Missing entries of X at their conditional means, given K and pull = X K with 0 where X is missing; total, n x n or
// without entries, grows by the conditional covariances.
void condition_rows(MatrixOut X, Mask missing, Matrix K, Matrix pull, MatrixOut total, const std::string& isa) {
    const int64_t rows = int64_t(X.shape(0)), n = int64_t(X.shape(1));
    const auto fits = [&](const auto& A, int64_t height) { return int64_t(A.shape(0)) == height && int64_t(A.shape(1)) == n; };
    if (n < 1 || n > 1 << 15 || !fits(missing, rows) || !fits(pull, rows) || !fits(K, n) || (total.size() && !fits(total, n)))
        throw std::invalid_argument("the arrays do not fit together");
    const ConditionArgs args{int(n), K.data(), missing.data(), pull.data(), X.data(), total.size() ? total.data() : nullptr};
    Scratch scratch;
    double* memory = scratch.at_least(size_t(condition_memory(n)));
    std::vector<int32_t> indices(size_t(2 * n));
    in_pieces(rows, 500, [&](int64_t begin, int64_t end) {
        kernels_for(isa).condition(args, begin, end, indices.data(), memory);
    });
}

// Weights of the neighbours of each moment of a series, given the correlations, series x lags.
void bridge_weights(Matrix correlations, Input64 moments, Input64 series, Neighbours neighbours, double noise,
                    MatrixOut weights, const std::string& isa) {
    const int64_t systems = int64_t(moments.shape(0)), each = int64_t(neighbours.shape(1));
    if (int64_t(series.shape(0)) != systems || int64_t(neighbours.shape(0)) != systems || each > most_neighbours ||
        int64_t(weights.shape(0)) != systems || int64_t(weights.shape(1)) != each)
        throw std::invalid_argument("the arrays do not fit together");
    for (int64_t s = 0; s < systems; ++s)
        if (series.data()[s] < 0 || series.data()[s] >= int64_t(correlations.shape(0)))
            throw std::invalid_argument("series names one that does not exist");
    const BridgeArgs args{int64_t(correlations.shape(1)), correlations.data(), moments.data(), series.data(),
                          int(each), neighbours.data(), noise, weights.data()};
    in_pieces(systems, 20000, [&](int64_t begin, int64_t end) { kernels_for(isa).bridge(args, begin, end); });
}

// Entries of series predicted by their neighbours: the sum of these, up to the bounds of the series, by the weights of
// the system of each entry.
void weigh_neighbours(Matrix R, Values bounds, Input64 series, Neighbours neighbours, Input64 system, Matrix weights,
                      ValuesOut out, const std::string& isa) {
    const int64_t count = int64_t(series.shape(0)), each = int64_t(neighbours.shape(1)), n = int64_t(R.shape(1));
    if (int64_t(bounds.shape(0)) != n || int64_t(neighbours.shape(0)) != count || int64_t(system.shape(0)) != count ||
        int64_t(weights.shape(1)) != each || int64_t(out.shape(0)) != count)
        throw std::invalid_argument("the arrays do not fit together");
    const auto inside = [](int64_t index, size_t length) { return index >= 0 && index < int64_t(length); };
    for (int64_t i = 0; i < count; ++i)
        if (!inside(series.data()[i], R.shape(1)) || !inside(system.data()[i], weights.shape(0)))
            throw std::invalid_argument("an entry has a series or a system that does not exist");
    for (int64_t i = 0; i < count * each; ++i)
        if (neighbours.data()[i] >= int64_t(R.shape(0))) throw std::invalid_argument("a neighbour is beyond the last moment");
    const WeighArgs args{n, R.data(), bounds.data(), series.data(), system.data(), int(each), neighbours.data(),
                         weights.data(), out.data()};
    in_pieces(count, 20000, [&](int64_t begin, int64_t end) { kernels_for(isa).weigh(args, begin, end); });
}

// The median of each stretch x[begin..end), or of |x - about| where `about` is as long as the others.
void medians_of_stretches(Values x, Input64 begin, Input64 end, Values about, ValuesOut medians) {
    const int64_t count = int64_t(begin.shape(0)), length = int64_t(x.shape(0));
    if (int64_t(end.shape(0)) != count || int64_t(medians.shape(0)) != count ||
        (about.shape(0) && int64_t(about.shape(0)) != count))
        throw std::invalid_argument("the arrays do not fit together");
    for (int64_t k = 0; k < count; ++k)
        if (begin.data()[k] < 0 || begin.data()[k] >= end.data()[k] || end.data()[k] > length)
            throw std::invalid_argument("a stretch has no number, or is not in the array");
    const double* centres = about.shape(0) ? about.data() : nullptr;
    in_pieces(count, 20000, Medians{x.data(), begin.data(), end.data(), centres, medians.data()});
}

// GRASTA's tracker over the columns `order`: U, gamma and w are replaced; (coefficients, mu, level, scale).
nb::tuple track(Input64 indptr, Input32 rows, Entries values, Input64 order, MatrixOut U, ValuesOut gamma, ValuesOut w,
                double mu, int64_t level, double scale, double rho, int min_inner, int max_inner, double tolerance,
                double mu_min, double mu_max, int levels, double step, bool learn, const std::string& isa) {
    const int64_t m = int64_t(U.shape(0)), r = int64_t(U.shape(1)), n = int64_t(indptr.shape(0)) - 1;
    const int64_t count = int64_t(order.shape(0)), height = track_length(m);
    const bool single = values.dtype() == nb::dtype<float>();
    if (!single && values.dtype() != nb::dtype<double>()) throw std::invalid_argument("values must be float");
    check_size(m, n);
    if (int64_t(gamma.shape(0)) != m || int64_t(w.shape(0)) != r || r < 1 || rows.shape(0) != values.shape(0))
        throw std::invalid_argument("the arrays do not fit together");
    int64_t longest = 0;
    for (int64_t k = 0; k < count; ++k) {
        const int64_t j = order.data()[k];
        if (j < 0 || j >= n) throw std::invalid_argument("order names columns that do not exist");
        check_compressed(m, indptr, rows, j, j + 1);
        longest = std::max(longest, indptr.data()[j + 1] - indptr.data()[j]);
    }
    const TrackArgs args{{m, n, int64_t(rows.shape(0)), indptr.data(), rows.data(), values.data(), single},
                         int(r), rho, min_inner, max_inner, tolerance, mu_min, mu_max, levels, step, learn};
    Scratch held, scratch;
    double* by_column = held.at_least(size_t((r + 1) * height));
    std::memset(by_column, 0, sizeof(double) * size_t((r + 1) * height));
    TrackState state{by_column, by_column + r * height, w.data(), mu, level, scale};
    for (int64_t i = 0; i < m; ++i) {
        for (int64_t a = 0; a < r; ++a) state.U[a * height + i] = U.data()[i * r + a];
        state.gamma[i] = gamma.data()[i];
    }
    Array W = new_array(size_t(count), size_t(r));
    double* memory = scratch.at_least(size_t(track_memory(m, int(r), longest)));
    const Kernels& kernels = kernels_for(isa);
    in_pieces(count, 50, [&](int64_t first, int64_t last) {
        kernels.track(args, order.data() + first, last - first, state, W.data() + first * r, longest, memory);
    });
    for (int64_t i = 0; i < m; ++i) {
        for (int64_t a = 0; a < r; ++a) U.data()[i * r + a] = state.U[a * height + i];
        gamma.data()[i] = state.gamma[i];
    }
    return nb::make_tuple(W, state.mu, state.level, state.scale);
}

template <class T, class Work>
void by_length(const T& numbers, Work work) {
    if (numbers.dtype() == nb::dtype<double>())
        work(uint64_t(0));
    else if (numbers.dtype() == nb::dtype<float>())
        work(uint32_t(0));
    else
        throw std::invalid_argument("the numbers must be float");
}

// A bit for each number, and those that are not zero, unless there are more than `found` has room for; how many there are.
int64_t squeeze_numbers(Entries x, BitsOut bits, EntriesOut found, const std::string& isa, int threads) {
    const int64_t n = int64_t(x.shape(0));
    if (x.dtype() != found.dtype() || int64_t(bits.shape(0)) != (n + 63) / 64)
        throw std::invalid_argument("the arrays do not fit together");
    const Kernels& kernels = kernels_for(isa);
    Stop stop(Interpreter::signalled);
    int64_t many = 0;
    const auto squeezed = [&](auto word) {
        using Word = decltype(word);
        const auto look = [&](const Word* numbers, int64_t count, uint64_t* out) {
            kernels.nonzero_bits(numbers, sizeof(Word) == sizeof(float), count, out);
        };
        many = squeeze(static_cast<const Word*>(x.data()), n, bits.data(), static_cast<Word*>(found.data()),
                       int64_t(found.shape(0)), look, useful_threads(threads, n / nonzeros_at_once + 1), stop);
    };
    {
        const Interpreter::Without unlocked;
        by_length(x, squeezed);
    }
    if (stop.was_interrupted) throw nb::python_error();
    return many;
}

void expand_numbers(Bits bits, Entries found, EntriesOut x, int threads) {
    const int64_t n = int64_t(x.shape(0));
    if (x.dtype() != found.dtype() || int64_t(bits.shape(0)) != (n + 63) / 64)
        throw std::invalid_argument("the arrays do not fit together");
    if (n % 64 && bits.data()[n / 64] >> (n % 64)) throw std::invalid_argument("a bit is set for a number that is not there");
    Stop stop(Interpreter::signalled);
    bool fits = true;
    const auto expanded = [&](auto word) {
        using Word = decltype(word);
        fits = expand(bits.data(), static_cast<const Word*>(found.data()), int64_t(found.shape(0)), n,
                      static_cast<Word*>(x.data()), useful_threads(threads, n / nonzeros_at_once + 1), stop);
    };
    {
        const Interpreter::Without unlocked;
        by_length(x, expanded);
    }
    if (stop.was_interrupted) throw nb::python_error();
    if (!fits) throw std::invalid_argument("there are not as many numbers as the bits say");
}

}  // namespace

NB_MODULE(_core, module) {
    module.doc() = "The compiled core of lowsparse; lowsparse.sweeps.native is its user.";
    // A thread that still solves, or a library that keeps modules alive (CuPy), holds objects until the process is gone.
    // That is no news for a user; the tests ask for the list.
    nb::set_leak_warnings(std::getenv("LOWSPARSE_LIST_LEAKS") != nullptr);
    Interpreter::note_main_thread();
    module.def("instruction_sets", &instruction_sets, "Those this processor can run, best first.");
    module.def("track", &track, nb::arg("indptr"), nb::arg("rows"), nb::arg("values"), nb::arg("order"),
               nb::arg("U").noconvert(), nb::arg("gamma").noconvert(), nb::arg("w").noconvert(), nb::arg("mu"), nb::arg("level"), nb::arg("scale"), nb::arg("rho"),
               nb::arg("min_inner"), nb::arg("max_inner"), nb::arg("tolerance"), nb::arg("mu_min"), nb::arg("mu_max"),
               nb::arg("levels"), nb::arg("step"), nb::arg("learn"), nb::arg("isa"),
               "GRASTA's tracker over many columns; lowsparse.solvers.tracking is its user.");
    module.def("condition", &condition_rows, nb::arg("X").noconvert(), nb::arg("missing").noconvert(), nb::arg("K"),
               nb::arg("pull"), nb::arg("total").noconvert(), nb::arg("isa"),
               "Missing entries of rows at their conditional means; lowsparse.series.normal is its user.");
    module.def("weigh", &weigh_neighbours, nb::arg("R"), nb::arg("bounds"), nb::arg("series"), nb::arg("neighbours"),
               nb::arg("system"), nb::arg("weights"), nb::arg("out").noconvert(), nb::arg("isa"),
               "Entries of series by the weights of their neighbours; lowsparse.series.bridging is its user.");
    module.def("medians", &medians_of_stretches, nb::arg("x"), nb::arg("begin"), nb::arg("end"), nb::arg("about"),
               nb::arg("medians").noconvert(),
               "Medians of stretches of an array; lowsparse.series.runs is its user.");
    module.def("bridge", &bridge_weights, nb::arg("correlations"), nb::arg("moments"), nb::arg("series"),
               nb::arg("neighbours"), nb::arg("noise"), nb::arg("weights").noconvert(), nb::arg("isa"),
               "Weights of the neighbours of missing readings; lowsparse.series.bridging is its user.");
    module.def("squeeze", &squeeze_numbers, nb::arg("x"), nb::arg("bits").noconvert(), nb::arg("found").noconvert(), nb::arg("isa"), nb::arg("threads"),
               "A bit for each number, and those that are not zero; lowsparse.places.disk.scratch is its user.");
    module.def("expand", &expand_numbers, nb::arg("bits"), nb::arg("found"), nb::arg("x").noconvert(), nb::arg("threads"),
               "The numbers again.");
    bind_video(module);
    nb::class_<ColumnSweep>(module, "ColumnSweep")
        .def(nb::init<int64_t, Input64, Input32, Entries, const std::string&>(), nb::arg("m"), nb::arg("indptr"),
             nb::arg("rows"), nb::arg("values"), nb::arg("isa"))
        .def("sweep", &ColumnSweep::sweep, nb::arg("U"), nb::arg("S"), nb::arg("S_out").none(),
             nb::arg("V_previous").none(), nb::arg("rotation").none(), nb::arg("gamma"), nb::arg("t_S"), nb::arg("lambda2"),
             nb::arg("rule"), nb::arg("threads"))
        .def("regress", &ColumnSweep::regress, nb::arg("U"), nb::arg("V").none(), nb::arg("kind"), nb::arg("first_c"),
             nb::arg("c"), nb::arg("p"), nb::arg("n_reweight"), nb::arg("shrink"), nb::arg("ridge"),
             nb::arg("largest"), nb::arg("bound"), nb::arg("unit"), nb::arg("total_entries"), nb::arg("threads"))
        .def("entries", &ColumnSweep::entries, nb::arg("U"), nb::arg("V"), nb::arg("minus_values"), nb::arg("threads"))
        .def("product", &ColumnSweep::product, nb::arg("y"), nb::arg("V"), nb::arg("threads"))
        .def("product_transposed", &ColumnSweep::product_transposed, nb::arg("y"), nb::arg("U"), nb::arg("threads"))
        .def("gradient", &ColumnSweep::gradient, nb::arg("U"), nb::arg("V"), nb::arg("kind"), nb::arg("c"), nb::arg("p"),
             nb::arg("threads"))
        .def("curvature", &ColumnSweep::curvature, nb::arg("U"), nb::arg("V"), nb::arg("B"), nb::arg("kind"),
             nb::arg("c"), nb::arg("p"), nb::arg("threads"))
        .def("ascend", &ColumnSweep::ascend, nb::arg("U"), nb::arg("C"), nb::arg("multiplier"), nb::arg("w"),
             nb::arg("multiplier_out").noconvert(), nb::arg("w_out").noconvert(), nb::arg("beta"), nb::arg("next_beta"), nb::arg("threads"))
        .def("grams", &ColumnSweep::grams, nb::arg("U"), nb::arg("threads"))
        .def("subsets", &ColumnSweep::subsets, nb::arg("U"), nb::arg("V"), nb::arg("seeds"), nb::arg("max_draws"), nb::arg("c"),
             nb::arg("bound"), nb::arg("clean_draws"), nb::arg("threads"))
        .def("climb", &ColumnSweep::climb, nb::arg("row_starts"), nb::arg("column_starts"), nb::arg("start_vectors"), nb::arg("unit"),
             nb::arg("threads"))
        .def("kth_largest", &ColumnSweep::kth_largest, nb::arg("y"), nb::arg("k"), nb::arg("threads"))
        .def("gram_product", &ColumnSweep::gram_product, nb::arg("Q"), nb::arg("threads"));
}
