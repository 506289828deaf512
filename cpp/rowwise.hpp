// Passes over the entries of a column with the rows of U as they lie: products of rows with coefficients, sums of weighted
// rows, and outer products added to rows. Rows are padded to whole packs; what is padded is zero, and so is row m.
#pragma once
#include "kernels.hpp"
#include "losses.hpp"
#include "pack.hpp"

#include <type_traits>
#include <vector>

namespace lowsparse {
namespace LOWSPARSE_ISA {

constexpr int64_t stretch = 256;  // entries of a column at once: the rows they see stay in the first-level cache

// body(packs, at): the padded columns in strips of up to four packs, so that a strip's sums stay in registers.
template <class Body>
LS_INLINE void in_strips(int padded, Body body) {
    int at = 0;
    for (; at + 16 <= padded; at += 16) body(std::integral_constant<int, 4>{}, at);
    switch ((padded - at) / 4) {
        case 3: body(std::integral_constant<int, 3>{}, at); break;
        case 2: body(std::integral_constant<int, 2>{}, at); break;
        case 1: body(std::integral_constant<int, 1>{}, at); break;
    }
}

// out[n][k] = U[rows[k]] . v[n] for every k, and zero up to the next multiple of four; for one or two v at once
template <int N>
void dots(const double* U, int padded, int32_t empty_row, const int32_t* rows, int64_t count, const double* const (&v)[N],
          double* const (&out)[N]) {
    in_strips(padded, [&](auto packs, int at) LS_ALWAYS {
        constexpr int P = decltype(packs)::value;
        pack c[N][P];
        LS_UNROLL for (int n = 0; n < N; ++n)
            LS_UNROLL for (int a = 0; a < P; ++a) c[n][a] = load(v[n] + at + 4 * a);
        const auto four = [&](const int32_t* which, int64_t k) LS_ALWAYS {
            pack s[N][4];
            LS_UNROLL for (int i = 0; i < 4; ++i) {
                const double* u = U + int64_t(which[i]) * padded + at;
                LS_UNROLL for (int n = 0; n < N; ++n) s[n][i] = load(u) * c[n][0];
                LS_UNROLL for (int a = 1; a < P; ++a)
                    LS_UNROLL for (int n = 0; n < N; ++n) s[n][i] += load(u + 4 * a) * c[n][a];
            }
            LS_UNROLL for (int n = 0; n < N; ++n) {
                const pack found = sums(s[n][0], s[n][1], s[n][2], s[n][3]);
                store(out[n] + k, at ? load(out[n] + k) + found : found);
            }
        };
        int64_t k = 0;
        for (; k + 4 <= count; k += 4) four(rows + k, k);
        if (k < count) {
            int32_t last[4];
            for (int i = 0; i < 4; ++i) last[i] = k + i < count ? rows[k + i] : empty_row;
            four(last, k);
        }
    });
}

// total += sum of y[k] U[rows[k]]
template <class T>
void add_rows(const double* U, int padded, const int32_t* rows, int64_t count, const T* y, double* total) {
    in_strips(padded, [&](auto packs, int at) LS_ALWAYS {
        constexpr int P = decltype(packs)::value;
        pack s[P];
        LS_UNROLL for (int a = 0; a < P; ++a) s[a] = load(total + at + 4 * a);
        for (int64_t k = 0; k < count; ++k) {
            const pack yk = splat(y[k]);
            const double* u = U + int64_t(rows[k]) * padded + at;
            LS_UNROLL for (int a = 0; a < P; ++a) s[a] += yk * load(u + 4 * a);
        }
        LS_UNROLL for (int a = 0; a < P; ++a) store(total + at + 4 * a, s[a]);
    });
}

// G[rows[k]] += y[k] v
template <class T>
void add_to_rows(double* G, int padded, const int32_t* rows, int64_t count, const T* y, const double* v) {
    in_strips(padded, [&](auto packs, int at) LS_ALWAYS {
        constexpr int P = decltype(packs)::value;
        pack c[P];
        LS_UNROLL for (int a = 0; a < P; ++a) c[a] = load(v + at + 4 * a);
        for (int64_t k = 0; k < count; ++k) {
            const pack yk = splat(y[k]);
            double* g = G + int64_t(rows[k]) * padded + at;
            LS_UNROLL for (int a = 0; a < P; ++a) store(g + 4 * a, load(g + 4 * a) + yk * c[a]);
        }
    });
}

// A row of coefficients, padded with zeros.
class Coefficients {
    int r_;
    std::vector<double> memory_;

  public:
    Coefficients(int r, int padded) : r_(r), memory_(size_t(padded), 0.0) {}
    double* data() { return memory_.data(); }
    double* take(const double* from) {
        for (int a = 0; a < r_; ++a) memory_[size_t(a)] = from[a];
        return data();
    }
    double* clear() {
        std::fill(memory_.begin(), memory_.end(), 0.0);
        return data();
    }
    void put(double* to) const {
        for (int a = 0; a < r_; ++a) to[a] = memory_[size_t(a)];
    }
};

// body(first entry, how many, their rows) for the column j, by stretches
template <class Body>
LS_INLINE void by_stretches(const Columns& columns, int64_t j, Body body) {
    const int64_t end = columns.indptr[j + 1];
    for (int64_t first = columns.indptr[j]; first < end; first += stretch)
        body(first, end - first < stretch ? end - first : stretch, columns.rows + first);
}

// e -= x, for `count` entries
template <class T>
LS_INLINE void subtract(double* e, const T* x, int64_t count) {
    int64_t k = 0;
    for (; k + 4 <= count; k += 4) store(e + k, load(e + k) - load(x + k));
    for (; k < count; ++k) e[k] -= double(x[k]);
}

LS_INLINE int64_t whole_groups(int64_t count) { return (count + 3) / 4 * 4; }

// U V, entry by entry, less x if asked
template <class T>
void entries_columns(const EntriesArgs& args, int64_t begin, int64_t end) {
    Coefficients v(args.r, args.padded);
    double e[stretch];
    const T* x = static_cast<const T*>(args.columns.values);
    for (int64_t j = begin; j < end; ++j) {
        v.take(args.V + j * args.r);
        by_stretches(args.columns, j, [&](int64_t first, int64_t count, const int32_t* rows) {
            dots<1>(args.U, args.padded, int32_t(args.columns.m), rows, count, {v.data()}, {e});
            if (args.minus_values) subtract(e, x + first, count);
            std::memcpy(args.out + first, e, sizeof(double) * size_t(count));
        });
    }
}

// Y += A_block A_block^T Q for the zero-filled matrix A: w = A_j^T Q, then Y += A_j w
template <class T>
void gram_product_columns(const GramProductArgs& args, int64_t begin, int64_t end, double* Y) {
    Coefficients w(args.padded, args.padded);
    const T* x = static_cast<const T*>(args.columns.values);
    for (int64_t j = begin; j < end; ++j) {
        const int64_t first = args.columns.indptr[j], count = args.columns.indptr[j + 1] - first;
        const int32_t* rows = args.columns.rows + first;
        add_rows(args.Q, args.padded, rows, count, x + first, w.clear());
        add_to_rows(Y, args.padded, rows, count, x + first, w.data());
    }
}

// out += Sp(y) V
inline void product_columns(const ProductArgs& args, int64_t begin, int64_t end, double* out) {
    Coefficients v(args.r, args.padded);
    for (int64_t j = begin; j < end; ++j) {
        const int64_t first = args.columns.indptr[j], count = args.columns.indptr[j + 1] - first;
        add_to_rows(out, args.padded, args.columns.rows + first, count, args.y + first, v.take(args.factor + j * args.r));
    }
}

// out = Sp(y)^T U
inline void product_transposed_columns(const ProductArgs& args, int64_t begin, int64_t end, double* out) {
    Coefficients total(args.r, args.padded);
    for (int64_t j = begin; j < end; ++j) {
        const int64_t first = args.columns.indptr[j], count = args.columns.indptr[j + 1] - first;
        add_rows(args.factor, args.padded, args.columns.rows + first, count, args.y + first, total.clear());
        total.put(out + j * args.r);
    }
}

// As gradient_columns, for up to 16 columns of U and a slope computed on the way: rows are read once, four at a time.
template <int P, class Slope, class T>
double gradient_at_once(const GradientArgs& args, int64_t begin, int64_t end, double* G) {
    constexpr int padded = 4 * P;
    const Slope slope(args.loss);
    Coefficients v(args.r, padded);
    const T* x = static_cast<const T*>(args.columns.values);
    pack value = splat(0.0);
    for (int64_t j = begin; j < end; ++j) {
        v.take(args.V + j * args.r);
        pack c[P], total[P];
        LS_UNROLL for (int a = 0; a < P; ++a) {
            c[a] = load(v.data() + 4 * a);
            total[a] = splat(0.0);
        }
        const auto four = [&](const int32_t* rows, pack given) LS_ALWAYS {
            pack u[4][P], s[4];
            LS_UNROLL for (int i = 0; i < 4; ++i) {
                LS_UNROLL for (int a = 0; a < P; ++a) u[i][a] = load(args.U + int64_t(rows[i]) * padded + 4 * a);
                s[i] = u[i][0] * c[0];
                LS_UNROLL for (int a = 1; a < P; ++a) s[i] += u[i][a] * c[a];
            }
            const pack y = slope(sums(s[0], s[1], s[2], s[3]) - given, value);
            LS_UNROLL for (int i = 0; i < 4; ++i) {
                const pack yi = splat(y[i]);
                double* g = G + int64_t(rows[i]) * padded;
                LS_UNROLL for (int a = 0; a < P; ++a) {
                    total[a] += yi * u[i][a];
                    store(g + 4 * a, load(g + 4 * a) + yi * c[a]);
                }
            }
        };
        const int64_t stop = args.columns.indptr[j + 1];
        int64_t k = args.columns.indptr[j];
        for (; k + 4 <= stop; k += 4) four(args.columns.rows + k, load(x + k));
        if (k < stop) {
            int32_t rows[4];
            double given[4];
            for (int i = 0; i < 4; ++i) {
                rows[i] = k + i < stop ? args.columns.rows[k + i] : int32_t(args.columns.m);
                given[i] = k + i < stop ? double(x[k + i]) : 0.0;
            }
            four(rows, load(given));
        }
        LS_UNROLL for (int a = 0; a < P; ++a) store(v.data() + 4 * a, total[a]);
        v.put(args.V_out + j * args.r);
    }
    return sum(value);
}

template <class Slope, class T>
double gradient_at_once(const GradientArgs& args, int64_t begin, int64_t end, double* G) {
    switch (args.padded) {
        case 4: return gradient_at_once<1, Slope, T>(args, begin, end, G);
        case 8: return gradient_at_once<2, Slope, T>(args, begin, end, G);
        case 12: return gradient_at_once<3, Slope, T>(args, begin, end, G);
        default: return gradient_at_once<4, Slope, T>(args, begin, end, G);
    }
}

// The sum of rho(e) over the residuals; G += Sp(psi(e)) V, and V_out = Sp(psi(e))^T U
template <class T>
double gradient_columns(const GradientArgs& args, int64_t begin, int64_t end, double* G) {
    if (args.padded <= 16 && args.loss.kind == LossKind::l1) return gradient_at_once<SignSlope, T>(args, begin, end, G);
    if (args.padded <= 16 && args.loss.kind == LossKind::pseudo_huber)
        return gradient_at_once<PseudoHuberSlope, T>(args, begin, end, G);
    Coefficients v(args.r, args.padded), total(args.r, args.padded);
    double e[stretch], value = 0.0;
    const T* x = static_cast<const T*>(args.columns.values);
    for (int64_t j = begin; j < end; ++j) {
        v.take(args.V + j * args.r);
        total.clear();
        by_stretches(args.columns, j, [&](int64_t first, int64_t count, const int32_t* rows) {
            dots<1>(args.U, args.padded, int32_t(args.columns.m), rows, count, {v.data()}, {e});
            subtract(e, x + first, count);
            value += slopes(args.loss, e, whole_groups(count));
            add_rows(args.U, args.padded, rows, count, e, total.data());
            add_to_rows(G, args.padded, rows, count, e, v.data());
        });
        total.put(args.V_out + j * args.r);
    }
    return value;
}

// The sum of w(e) d^2, where d = U B on the entries
template <class T>
double curvature_columns(const CurvatureArgs& args, int64_t begin, int64_t end) {
    Coefficients v(args.r, args.padded), b(args.r, args.padded);
    double e[stretch], d[stretch];
    pack total = splat(0.0);
    const T* x = static_cast<const T*>(args.columns.values);
    for (int64_t j = begin; j < end; ++j) {
        v.take(args.V + j * args.r);
        b.take(args.B + j * args.r);
        by_stretches(args.columns, j, [&](int64_t first, int64_t count, const int32_t* rows) {
            dots<2>(args.U, args.padded, int32_t(args.columns.m), rows, count, {v.data(), b.data()}, {e, d});
            subtract(e, x + first, count);
            weights(args.loss, e, whole_groups(count));
            for (int64_t k = count; k < whole_groups(count); ++k) e[k] = 0.0;
            for (int64_t k = 0; k < count; k += 4) {
                const pack along = load(d + k);
                total += load(e + k) * along * along;
            }
        });
    }
    return sum(total);
}

// v = c + U^T w; e = U v - x; then the multiplier and w (see kernels.hpp), and G += Sp(w) V
template <class T>
void ascend_columns(const AscendArgs& args, int64_t begin, int64_t end, double* G, AscendSums& sums) {
    Coefficients v(args.r, args.padded);
    double e[stretch];
    const T* x = static_cast<const T*>(args.columns.values);
    const pack beta = splat(args.beta), per_beta = splat(1.0 / args.beta), per_next = splat(1.0 / args.next_beta);
    const pack one = splat(1.0);
    pack l1 = splat(0.0), gap2 = splat(0.0);
    for (int64_t j = begin; j < end; ++j) {
        const int64_t start = args.columns.indptr[j], length = args.columns.indptr[j + 1] - start;
        v.take(args.C + j * args.r);
        add_rows(args.U, args.padded, args.columns.rows + start, length, args.w + start, v.data());
        v.put(args.V + j * args.r);
        by_stretches(args.columns, j, [&](int64_t first, int64_t count, const int32_t* rows) {
            dots<1>(args.U, args.padded, int32_t(args.columns.m), rows, count, {v.data()}, {e});
            subtract(e, x + first, count);
            const auto step = [&](pack residual, pack old, pack& updated) LS_ALWAYS {
                updated = clip(old + beta * residual, one);
                const pack gap = (updated - old) * per_beta;
                l1 += absolute(residual);
                gap2 += gap * gap;
                return splat(0.0) - gap - updated * per_next;
            };
            const double* multiplier = args.multiplier + first;
            double* multiplier_out = args.multiplier_out + first;
            double* w = args.w_out + first;
            int64_t k = 0;
            pack updated;
            for (; k + 4 <= count; k += 4) {
                store(w + k, step(load(e + k), load(multiplier + k), updated));
                store(multiplier_out + k, updated);
            }
            if (k < count) {
                double old[4] = {0, 0, 0, 0};
                for (int64_t i = k; i < count; ++i) old[i - k] = multiplier[i];
                const pack after = step(load(e + k), load(old), updated);
                for (int64_t i = k; i < count; ++i) {
                    w[i] = after[int(i - k)];
                    multiplier_out[i] = updated[int(i - k)];
                }
            }
            add_to_rows(G, args.padded, rows, count, w, v.data());
        });
    }
    sums.l1 += sum(l1);
    sums.gap2 += sum(gap2);
}

// Of each column: U_j^T U_j, r x r
inline void grams_columns(const GramsArgs& args, int64_t begin, int64_t end) {
    const int r = args.r, padded = args.padded;
    std::vector<double> gram(static_cast<size_t>(r) * size_t(padded));
    for (int64_t j = begin; j < end; ++j) {
        std::fill(gram.begin(), gram.end(), 0.0);
        for (int64_t k = args.columns.indptr[j]; k < args.columns.indptr[j + 1]; ++k) {
            const double* u = args.U + int64_t(args.columns.rows[k]) * padded;
            for (int a = 0; a < r; ++a) {
                const pack left = splat(u[a]);
                double* row = gram.data() + a * padded;
                for (int b = 0; b < padded; b += 4) store(row + b, load(row + b) + left * load(u + b));
            }
        }
        for (int a = 0; a < r; ++a)
            std::memcpy(args.out + (j * r + a) * r, gram.data() + a * padded, sizeof(double) * size_t(r));
    }
}

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
