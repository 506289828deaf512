// Panel: the rows of U that a column observes and what they are to explain (y = x - s), gathered into a buffer that
// stays in cache, and what the sweep needs of them: the normal equations, products with coefficients, moments.
#pragma once
#include "normal.hpp"
#include "pack.hpp"

#include <type_traits>

namespace lowsparse {
namespace LOWSPARSE_ISA {

#if defined(__AVX512F__)
constexpr int registers = 32;
#else
constexpr int registers = 16;
#endif

// Up to 16 columns of U. As many entries as a pack has numbers form a group, stored by component: R packs of U and one
// of y.
template <int R, class Pack_ = pack>
struct SmallPanel {
    using Pack = Pack_;
    static constexpr int lanes = sizeof(Pack) / sizeof(double);
    static constexpr int padded = R <= 2 ? R : row_length(R);  // doubles from one row of U to the next
    static constexpr int stride = R + 1;                         // packs from one group to the next
    static constexpr int products = SmallSystem<R>::size;
    static constexpr int row_start(int a) { return SmallSystem<R>::row_start(a); }

    Pack* buffer;
    Pack normal[(products + 3) / 4 * 4];  // row a: the products of component a with a, ..., R-1 and the right-hand side
    SmallSystem<R> system;

    SmallPanel(double* memory, int, int64_t) : buffer(reinterpret_cast<Pack*>(memory)) {}

    struct Coefficients {
        Pack c[R];
        Coefficients(const double* v, int) {
            for (int a = 0; a < R; ++a) c[a] = splat_as<Pack>(v[a]);
        }
    };
    struct Row {  // of coefficients, as they are added to a row of G
        double c[padded];
        Row(const double* v, int) {
            for (int a = 0; a < padded; ++a) c[a] = v[a];
        }
    };
    struct Moments {
        Pack total[R];
        Moments(double*, int) {
            for (int a = 0; a < R; ++a) total[a] = splat_as<Pack>(0.0);
        }
    };

    LS_INLINE static void transpose_rows(const double* U, const int32_t* which, Pack* out) {
        const double* rows[lanes];
        LS_UNROLL for (int i = 0; i < lanes; ++i) rows[i] = U + int64_t(which[i]) * padded;
        constexpr int whole = R / 4 * 4 + (R % 4 == 3 ? 4 : 0);
        LS_UNROLL for (int a = 0; a < whole; a += 4) {
            Pack four[4];
            transpose(rows, a, four);
            LS_UNROLL for (int b = 0; b < 4; ++b)
                if (a + b < R) out[a + b] = four[b];
        }
        if constexpr (R == 1) {
            LS_UNROLL for (int i = 0; i < lanes; ++i) out[0][i] = *rows[i];
        } else if constexpr (whole < R) {
            Pack two[2];
            transpose_pairs(rows, whole, two);
            LS_UNROLL for (int b = 0; b < R - whole; ++b) out[whole + b] = two[b];
        }
    }

    LS_INLINE void gather(int64_t at, const double* U, const int32_t* rows, Pack y) {
        transpose_rows(U, rows, buffer + at * stride);
        set_y(at, y);
    }
    LS_INLINE Pack y(int64_t group) const { return buffer[group * stride + R]; }
    LS_INLINE void set_y(int64_t group, Pack y) { buffer[group * stride + R] = y; }

    void clear_normal() {
        for (Pack& p : normal) p = splat_as<Pack>(0.0);
    }

    // The rows of `normal` in tiles whose sums fit in the registers: the first while the groups are gathered, as far as
    // there is room beside the gathered components, the others in loops of their own. All registers but two may hold sums
    // there; while gathering, sums and components may be three more than there are registers: a few spilled ones cost less
    // than another loop.
    static constexpr int first_tile_end() {
        int a = 0;
        while (a < R && row_start(a + 1) + R + 1 <= registers + 3) ++a;
        return a;
    }
    static constexpr bool one_tile = first_tile_end() == R;
    static constexpr bool interleaved = 2 * products <= registers;  // beside the sums there is room for another column
    static constexpr int tile_end(int first) {
        constexpr int most = registers - 2;
        const int left = products - row_start(first), tiles = (left + most - 1) / most, target = (left + tiles - 1) / tiles;
        int a = first;
        while (a < R && (a == first || (row_start(a) - row_start(first) < target &&
                                        row_start(a + 1) - row_start(first) <= most)))
            ++a;
        return a;
    }
    template <int First, int Last, class Left>
    LS_INLINE static void add_products(Pack* s, const Pack* p, Left left) {
        LS_UNROLL for (int a = First; a < Last; ++a) {
            const Pack pa = left(p[a]);
            LS_UNROLL for (int b = a; b <= R; ++b) s[row_start(a) - row_start(First) + b - a] += pa * p[b];
        }
    }
    // weight(group) gives what to multiply a component by
    template <int First, class Weight>
    LS_INLINE void add_tiles(const Pack* piece, int64_t groups, Weight weight) {
        if constexpr (First < R) {
            constexpr int last = tile_end(First), start = row_start(First), size = row_start(last) - start;
            Pack s[size];
            LS_UNROLL for (int t = 0; t < size; ++t) s[t] = normal[start + t];
            for (int64_t g = 0; g < groups; ++g) add_products<First, last>(s, piece + g * stride, weight(g));
            LS_UNROLL for (int t = 0; t < size; ++t) normal[start + t] = s[t];
            add_tiles<last>(piece, groups, weight);
        }
    }
    static constexpr auto as_it_is = [](Pack component) LS_ALWAYS { return component; };
    // Gathers the column's groups first .. end-1 and adds their products with each other and with y; beside(place) comes
    // before a group takes its place in the panel.
    template <class Column, class Beside>
    LS_INLINE void add_normal(Column& column, int64_t first, int64_t end, int64_t base, const double* U, Beside beside) {
        constexpr int last = first_tile_end(), size = row_start(last);
        Pack s[size + 1];
        LS_UNROLL for (int t = 0; t < size; ++t) s[t] = normal[t];
        column.over(first, end, base, [&](const auto& group, int64_t at) LS_ALWAYS {
            beside(at);
            if (at % (8 / lanes) == 0) column.prefetch(group);
            Pack p[stride];
            transpose_rows(U, group.rows, p);
            p[R] = load_as<Pack>(group.x) - load_as<Pack>(group.s);
            LS_UNROLL for (int a = 0; a < stride; ++a) buffer[at * stride + a] = p[a];
            add_products<0, last>(s, p, as_it_is);
        });
        LS_UNROLL for (int t = 0; t < size; ++t) normal[t] = s[t];
        if constexpr (last < R) add_rest(buffer + (first - base) * stride, end - first);
    }
    LS_OUTLINE void add_rest(const Pack* piece, int64_t groups) {
        add_tiles<first_tile_end()>(piece, groups, [](int64_t) LS_ALWAYS { return as_it_is; });
    }

    // Adds the products of groups that are there already, weighted.
    LS_OUTLINE void add_weighted(int64_t first, int64_t end, const double* weights) {
        add_tiles<0>(buffer + first * stride, end - first, [=](int64_t g) LS_ALWAYS {
            const Pack w = load_as<Pack>(weights + lanes * (first + g));
            return [=](Pack component) LS_ALWAYS { return w * component; };
        });
    }

    // v = [keep U_j^T U_j + ridge I]^-1 b with b = U_j^T y, respectively another b; gives back v . b
    LS_INLINE double solve(double keep, double ridge, double* v) {
        double a[(products + 3) / 4 * 4], b[R];
        LS_UNROLL for (int t = 0; t < products; t += 4)
            store(a + t, sums(normal[t], normal[t + 1], normal[t + 2], normal[t + 3]));
        LS_UNROLL for (int k = 0; k < R; ++k) b[k] = a[system.at(k, R)];
        system.factor(a, keep, ridge);
        return system.solve(b, v);
    }
    LS_INLINE double solve_again(const Moments& moments, double* v) const {
        double b[R];
        LS_UNROLL for (int k = 0; k < R; ++k) b[k] = sum(moments.total[k]);
        return system.solve(b, v);
    }

    LS_INLINE Pack times(int64_t group, const Coefficients& v) const {
        const Pack* p = buffer + group * stride;
        Pack e = p[0] * v.c[0];
        LS_UNROLL for (int a = 1; a < R; ++a) e += p[a] * v.c[a];
        return e;
    }
    LS_INLINE void add_moments(int64_t group, Pack y, Moments& b) const {
        const Pack* p = buffer + group * stride;
        LS_UNROLL for (int a = 0; a < R; ++a) b.total[a] += p[a] * y;
    }

    // G[row] += y v, for the rows of a group.
    LS_INLINE static void scatter(double* G, const int32_t* rows, const Pack& each, const Row& v, int) {
        LS_UNROLL for (int i = 0; i < lanes; ++i) {
            double* g = G + int64_t(rows[i]) * padded;
            if constexpr (padded == 1) {
                *g += each[i] * v.c[0];
            } else if constexpr (padded == 2) {
                add_pair(g, each[i], v.c);
            } else {
                constexpr int part = padded % lanes ? 4 : lanes;
                using Part = std::conditional_t<part == 4, pack, Pack>;
                const Part yi = splat_as<Part>(each[i]);
                LS_UNROLL for (int a = 0; a < padded; a += part)
                    store(g + a, load_as<Part>(g + a) + yi * load_as<Part>(v.c + a));
            }
        }
    }
};

// Any number of columns: entry k holds its row of U as it is, padded with zeros to a multiple of four; y is apart.
struct LargePanel {
    using Pack = pack;
    static constexpr int lanes = 4;
    static constexpr bool one_tile = false, interleaved = false;
    int padded;
    double *gram, *right_side, *buffer, *y_;  // padded x padded, padded, entries x padded, entries
    LargeSystem system;                  // made from gram, in its place

    LargePanel(double* memory, int rank, int64_t capacity) : padded(row_length(rank)) {
        gram = memory;
        right_side = gram + padded * padded;
        double* inverse = right_side + padded;
        y_ = inverse + padded;
        buffer = y_ + capacity;
        system = {rank, padded, gram, inverse};
    }

    struct Coefficients {
        const double* c;
        Coefficients(const double* v, int) : c(v) {}
    };
    using Row = Coefficients;
    struct Moments {
        double* total;
        Moments(double* memory, int rank) : total(memory) {
            std::memset(total, 0, sizeof(double) * size_t(row_length(rank)));
        }
    };

    LS_INLINE void gather(int64_t at, const double* U, const int32_t* rows, pack y) {
        set_y(at, y);
        double* out = buffer + at * 4 * padded;
        for (int i = 0; i < 4; ++i)
            std::memcpy(out + i * padded, U + int64_t(rows[i]) * padded, sizeof(double) * size_t(padded));
    }
    // ... and right_side += the rows weighted by y
    LS_INLINE void gather_and_add(int64_t at, const double* U, const int32_t* which, pack y) {
        set_y(at, y);
        const double* rows[4];
        pack weight[4];
        for (int i = 0; i < 4; ++i) {
            rows[i] = U + int64_t(which[i]) * padded;
            weight[i] = splat(y[i]);
        }
        double* out = buffer + at * 4 * padded;
        for (int a = 0; a < padded; a += 4) {
            pack sum = load(right_side + a);
            LS_UNROLL for (int i = 0; i < 4; ++i) {
                const pack u = load(rows[i] + a);
                store(out + i * padded + a, u);
                sum += u * weight[i];
            }
            store(right_side + a, sum);
        }
    }
    LS_INLINE pack y(int64_t group) const { return load(y_ + 4 * group); }
    LS_INLINE void set_y(int64_t group, pack y) { store(y_ + 4 * group, y); }

    void clear_normal() { std::memset(gram, 0, sizeof(double) * size_t(padded * (padded + 1))); }

    // A tile of four rows and up to 3*4 columns of the Gram matrix stays in registers over the whole piece; weights may be
    // null.
    template <int Packs, bool weighted>
    LS_INLINE void add_gram_tile(const double* piece, const double* weights, int64_t entries, int a0, int b0) {
        pack s[4][Packs];
        LS_UNROLL for (int i = 0; i < 4; ++i)
            LS_UNROLL for (int j = 0; j < Packs; ++j) s[i][j] = load(gram + int64_t(a0 + i) * padded + b0 + 4 * j);
        for (int64_t k = 0; k < entries; ++k) {
            const double* u = piece + k * padded;
            pack right[Packs];
            LS_UNROLL for (int j = 0; j < Packs; ++j) {
                right[j] = load(u + b0 + 4 * j);
                if constexpr (weighted) right[j] = right[j] * splat(weights[k]);
            }
            LS_UNROLL for (int i = 0; i < 4; ++i) {
                const pack left = splat(u[a0 + i]);
                LS_UNROLL for (int j = 0; j < Packs; ++j) s[i][j] += left * right[j];
            }
        }
        LS_UNROLL for (int i = 0; i < 4; ++i)
            LS_UNROLL for (int j = 0; j < Packs; ++j) store(gram + int64_t(a0 + i) * padded + b0 + 4 * j, s[i][j]);
    }
    template <bool weighted>
    LS_INLINE void add_gram(const double* piece, const double* weights, int64_t entries) {
        for (int a0 = 0; a0 < padded; a0 += 4) {
            int b0 = a0;
            for (; b0 + 12 <= padded; b0 += 12) add_gram_tile<3, weighted>(piece, weights, entries, a0, b0);
            if (b0 + 8 == padded) add_gram_tile<2, weighted>(piece, weights, entries, a0, b0);
            if (b0 + 4 == padded) add_gram_tile<1, weighted>(piece, weights, entries, a0, b0);
        }
    }
    template <class Column, class Beside>
    LS_INLINE void add_normal(Column& column, int64_t first, int64_t end, int64_t base, const double* U, Beside beside) {
        column.over(first, end, base, [&](const auto& group, int64_t at) LS_ALWAYS {
            beside(at);
            if (at % 2 == 0) column.prefetch(group);
            gather_and_add(at, U, group.rows, load(group.x) - load(group.s));
        });
        add_gram<false>(buffer + (first - base) * 4 * padded, nullptr, (end - first) * 4);
    }
    LS_INLINE void add_weighted(int64_t first, int64_t end, const double* weights) {
        const double* piece = buffer + first * 4 * padded;
        const int64_t entries = (end - first) * 4;
        const double* w = weights + 4 * first;
        const double* y = y_ + 4 * first;
        for (int a = 0; a < padded; a += 4) {
            pack s = load(right_side + a);
            for (int64_t k = 0; k < entries; ++k) s += splat(w[k] * y[k]) * load(piece + k * padded + a);
            store(right_side + a, s);
        }
        add_gram<true>(piece, w, entries);
    }
    LS_INLINE double solve(double keep, double ridge, double* v) {
        system.factor(keep, ridge);
        return system.solve(right_side, v);
    }
    LS_INLINE double solve_again(const Moments& moments, double* v) const { return system.solve(moments.total, v); }

    LS_INLINE pack times(int64_t group, const Coefficients& v) const {
        const double* u = buffer + group * 4 * padded;
        pack e[4] = {splat(0.0), splat(0.0), splat(0.0), splat(0.0)};
        for (int a = 0; a < padded; a += 4) {
            const pack c = load(v.c + a);
            LS_UNROLL for (int i = 0; i < 4; ++i) e[i] += load(u + i * padded + a) * c;
        }
        return sums(e[0], e[1], e[2], e[3]);
    }
    LS_INLINE void add_moments(int64_t group, pack y, Moments& b) const {
        const double* u = buffer + group * 4 * padded;
        for (int a = 0; a < padded; a += 4) {
            pack s = load(b.total + a);
            LS_UNROLL for (int i = 0; i < 4; ++i) s += load(u + i * padded + a) * splat(y[i]);
            store(b.total + a, s);
        }
    }

    LS_INLINE static void scatter(double* G, const int32_t* rows, pack y, const Row& v, int padded) {
        for (int i = 0; i < 4; ++i) {
            double* g = G + int64_t(rows[i]) * padded;
            const pack yi = splat(y[i]);
            for (int a = 0; a < padded; a += 4) store(g + a, load(g + a) + yi * load(v.c + a));
        }
    }
};

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
