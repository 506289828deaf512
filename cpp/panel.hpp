// Panel: the rows of U that a column observes, gathered into a buffer that stays in cache, and the products the sweep
// needs of it: its Gram matrix, itself times coefficients, and its transpose times a vector.
#pragma once
#include "normal.hpp"
#include "pack.hpp"

namespace lowsparse {
namespace LOWSPARSE_ISA {

// Up to 16 columns of U. Four entries form a group, stored by component: R packs of U and one of the right-hand side.
template <int R>
struct SmallPanel {
    static constexpr int padded = R <= 2 ? R : row_length(R);  // doubles from one row of U to the next
    static constexpr int stride = R + 1;                         // packs from one group to the next
    static constexpr int products = R * (R + 3) / 2;

    pack* buffer;
    pack normal[products];  // row a: the products of component a with a, a+1, ..., R-1 and the right-hand side

    SmallPanel(double* memory, int) : buffer(reinterpret_cast<pack*>(memory)) {}

    struct Coefficients {
        pack c[R];
        Coefficients(const double* v, int) {
            for (int a = 0; a < R; ++a) c[a] = splat(v[a]);
        }
    };
    struct Row {  // of coefficients, as they are added to a row of G
        double c[padded];
        Row(const double* v, int) {
            for (int a = 0; a < padded; ++a) c[a] = v[a];
        }
    };
    struct Moments {
        pack total[R];
        Moments(double*, int) {
            for (int a = 0; a < R; ++a) total[a] = splat(0.0);
        }
        void read(double* b) const {
            for (int a = 0; a < R; ++a) b[a] = sum(total[a]);
        }
    };

    LS_INLINE static void transpose_rows(const double* U, const int32_t* rows, pack* out) {
        const double* r0 = U + int64_t(rows[0]) * padded;
        const double* r1 = U + int64_t(rows[1]) * padded;
        const double* r2 = U + int64_t(rows[2]) * padded;
        const double* r3 = U + int64_t(rows[3]) * padded;
        constexpr int whole = R / 4 * 4 + (R % 4 == 3 ? 4 : 0);
        LS_UNROLL for (int a = 0; a < whole; a += 4) {
            pack four[4];
            transpose(r0 + a, r1 + a, r2 + a, r3 + a, four);
            LS_UNROLL for (int b = 0; b < 4; ++b)
                if (a + b < R) out[a + b] = four[b];
        }
        if constexpr (R == 1) {
            out[0] = pack{*r0, *r1, *r2, *r3};
        } else if constexpr (whole < R) {
            pack two[2];
            transpose_pairs(r0 + whole, r1 + whole, r2 + whole, r3 + whole, two);
            LS_UNROLL for (int b = 0; b < R - whole; ++b) out[whole + b] = two[b];
        }
    }

    template <class Group>
    LS_INLINE void gather(int64_t at, const double* U, const Group& group) {
        transpose_rows(U, group.rows, buffer + at * stride);
        buffer[at * stride + R] = load(group.x) - load(group.s);
    }

    void clear_normal() {
        for (pack& p : normal) p = splat(0.0);
    }

    // The rows of `normal` in tiles that fit in the registers.
    static constexpr int row_start(int a) { return a * (R + 1) - a * (a - 1) / 2; }
    static constexpr int tile_end(int first) {
        constexpr int tiles = (products + 11) / 12, target = (products + tiles - 1) / tiles;
        int a = first, used = 0;
        while (a < R && (a == first || (used < target && used + R - a + 1 <= 12))) used += R - a++ + 1;
        return a;
    }
    template <int First>
    LS_INLINE void add_tiles(const pack* piece, int64_t groups) {
        if constexpr (First < R) {
            constexpr int last = tile_end(First), start = row_start(First), size = row_start(last) - start;
            pack s[size];
            LS_UNROLL for (int t = 0; t < size; ++t) s[t] = normal[start + t];
            const pack* p = piece;
            for (int64_t g = 0; g < groups; ++g, p += stride) {
                LS_UNROLL for (int a = First; a < last; ++a)
                    LS_UNROLL for (int b = a; b <= R; ++b) s[row_start(a) - start + b - a] += p[a] * p[b];
            }
            LS_UNROLL for (int t = 0; t < size; ++t) normal[start + t] = s[t];
            add_tiles<last>(piece, groups);
        }
    }
    void add_normal(int64_t first, int64_t groups) { add_tiles<0>(buffer + first * stride, groups); }

    // A: the upper triangle of the Gram matrix, in rows of row_length(R); b: the right-hand side.
    void read_normal(double* A, double* b) const {
        for (int a = 0; a < R; ++a) {
            for (int c = a; c < R; ++c) A[a * row_length(R) + c] = sum(normal[row_start(a) + c - a]);
            b[a] = sum(normal[row_start(a) + R - a]);
        }
    }

    LS_INLINE pack times(int64_t group, const Coefficients& v) const {
        const pack* p = buffer + group * stride;
        pack e = p[0] * v.c[0];
        LS_UNROLL for (int a = 1; a < R; ++a) e += p[a] * v.c[a];
        return e;
    }
    LS_INLINE void add_moments(int64_t group, pack y, Moments& b) const {
        const pack* p = buffer + group * stride;
        LS_UNROLL for (int a = 0; a < R; ++a) b.total[a] += p[a] * y;
    }

    // G[row] += y v, for the four rows of a group.
    LS_INLINE static void scatter(double* G, const int32_t* rows, pack y, const Row& v, int) {
        LS_UNROLL for (int i = 0; i < 4; ++i) {
            double* g = G + int64_t(rows[i]) * padded;
            const double yi = y[i];
            if constexpr (padded % 4 == 0) {
                LS_UNROLL for (int a = 0; a < padded; a += 4) store(g + a, load(g + a) + splat(yi) * load(v.c + a));
            } else {
                LS_UNROLL for (int a = 0; a < padded; ++a) g[a] += yi * v.c[a];
            }
        }
    }
};

// Any number of columns: entry k holds its row of U as it is, padded with zeros to a multiple of four, and the
// right-hand side in a vector of its own.
struct LargePanel {
    int r, padded;
    double *gram, *right_side, *buffer;  // padded x padded, padded, entries x padded

    LargePanel(double* memory, int rank) : r(rank), padded((rank + 3) / 4 * 4) {
        gram = memory;
        right_side = gram + int64_t(padded) * padded;
        buffer = right_side + (padded + 7) / 8 * 8;
    }

    struct Coefficients {
        const double* c;
        Coefficients(const double* v, int) : c(v) {}
    };
    using Row = Coefficients;
    struct Moments {
        double* total;
        int padded;
        Moments(double* memory, int rank) : total(memory), padded((rank + 3) / 4 * 4) {
            std::memset(total, 0, sizeof(double) * size_t(padded));
        }
        void read(double* b) const { std::memcpy(b, total, sizeof(double) * size_t(padded)); }
    };

    template <class Group>
    LS_INLINE void gather(int64_t at, const double* U, const Group& group) {
        double* out = buffer + at * 4 * padded;
        for (int i = 0; i < 4; ++i) {
            const double* u = U + int64_t(group.rows[i]) * padded;
            for (int a = 0; a < padded; a += 4) store(out + i * padded + a, load(u + a));
        }
        add_weighted(out, load(group.x) - load(group.s), right_side);
    }

    void clear_normal() { std::memset(gram, 0, sizeof(double) * size_t(padded) * size_t(padded + 1)); }

    // A tile of four rows and up to 3*4 columns of the Gram matrix stays in registers over the whole piece.
    template <int Packs>
    LS_INLINE void add_gram_tile(const double* piece, int64_t entries, int a0, int b0) {
        pack s[4][Packs];
        LS_UNROLL for (int i = 0; i < 4; ++i)
            LS_UNROLL for (int j = 0; j < Packs; ++j) s[i][j] = load(gram + int64_t(a0 + i) * padded + b0 + 4 * j);
        for (int64_t k = 0; k < entries; ++k) {
            const double* u = piece + k * padded;
            pack right[Packs];
            LS_UNROLL for (int j = 0; j < Packs; ++j) right[j] = load(u + b0 + 4 * j);
            LS_UNROLL for (int i = 0; i < 4; ++i) {
                const pack left = splat(u[a0 + i]);
                LS_UNROLL for (int j = 0; j < Packs; ++j) s[i][j] += left * right[j];
            }
        }
        LS_UNROLL for (int i = 0; i < 4; ++i)
            LS_UNROLL for (int j = 0; j < Packs; ++j) store(gram + int64_t(a0 + i) * padded + b0 + 4 * j, s[i][j]);
    }
    void add_normal(int64_t first, int64_t groups) {
        const double* piece = buffer + first * 4 * padded;
        for (int a0 = 0; a0 < padded; a0 += 4) {
            int b0 = a0;
            for (; b0 + 12 <= padded; b0 += 12) add_gram_tile<3>(piece, groups * 4, a0, b0);
            if (b0 + 8 == padded) add_gram_tile<2>(piece, groups * 4, a0, b0);
            if (b0 + 4 == padded) add_gram_tile<1>(piece, groups * 4, a0, b0);
        }
    }
    void read_normal(double* A, double* b) const {
        for (int a = 0; a < r; ++a) {
            for (int c = a; c < r; ++c) A[a * padded + c] = gram[a * padded + c];
            b[a] = right_side[a];
        }
    }

    LS_INLINE pack times(int64_t group, const Coefficients& v) const {
        const double* u = buffer + group * 4 * padded;
        pack e[4] = {splat(0.0), splat(0.0), splat(0.0), splat(0.0)};
        for (int a = 0; a < padded; a += 4) {
            const pack c = load(v.c + a);
            LS_UNROLL for (int i = 0; i < 4; ++i) e[i] += load(u + i * padded + a) * c;
        }
        double rows[16];
        LS_UNROLL for (int i = 0; i < 4; ++i) store(rows + 4 * i, e[i]);
        pack t[4];
        transpose(rows, rows + 4, rows + 8, rows + 12, t);
        return (t[0] + t[2]) + (t[1] + t[3]);
    }
    // total += the four rows at u, weighted by y
    LS_INLINE void add_weighted(const double* u, pack y, double* total) const {
        for (int a = 0; a < padded; a += 4) {
            pack s = load(total + a);
            LS_UNROLL for (int i = 0; i < 4; ++i) s += load(u + i * padded + a) * splat(y[i]);
            store(total + a, s);
        }
    }
    LS_INLINE void add_moments(int64_t group, pack y, Moments& b) const {
        add_weighted(buffer + group * 4 * padded, y, b.total);
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
