// The proximal sweep over columns, given U: for each column solve for v, shrink S, solve again, add to the gradient.
// While a column's part of U is in cache, everything that is asked of that column is done.
#pragma once
#include "normal.hpp"
#include "kernels.hpp"
#include "panel.hpp"

namespace lowsparse {
namespace LOWSPARSE_ISA {

constexpr int64_t gram_piece = 16;  // groups gathered and multiplied while they are in the first-level cache

// Entries of a panel: as many as keep it within half of a common second-level cache, in whole pieces of groups of eight; a
// longer column is gathered in pieces, once for every pass over it.
constexpr int64_t panel_capacity(int padded) {
    const int64_t pieces = 65536 / padded / (8 * gram_piece);
    return (pieces < 1 ? 1 : pieces) * 8 * gram_piece;
}

// Doubles from one row of U, and of G, to the next.
constexpr int padded_rank(int r) { return r <= 2 ? r : row_length(r); }

inline int64_t sweep_memory(int r) {
    const int64_t length = row_length(r), padded = padded_rank(r);
    return 3 * length + 8 + length * (length + 2) + (panel_capacity(int(padded)) + 4) * (padded + 1);
}

// As many entries of a column as a pack has numbers: where they are, in U and in the arrays of entries.
template <class T>
struct Group {
    const int32_t* rows;
    const T *x, *s;
    T* out;
};

// A column's entries in groups. What the last group lacks is filled up with zeros in the row m, a row of zeros in U and a
// row nobody reads in G, so that every loop runs over whole groups. Without outliers there is no S.
template <class T, bool outliers, int lanes = 4>
struct Column {
    Group<T> start;
    int64_t count, full;
    int32_t last_rows[lanes];
    T last_x[lanes], last_s[lanes], last_out[lanes];

    Column(const Columns& columns, int64_t j, const T* S = nullptr, T* S_out = nullptr) {
        const int64_t first = columns.indptr[j];
        count = columns.indptr[j + 1] - first;
        full = count / lanes;
        start = {columns.rows + first, static_cast<const T*>(columns.values) + first, S ? S + first : S,
                 S_out ? S_out + first : const_cast<T*>(S ? S + first : S)};  // without S_out nothing is written
    }
    void fill_last(int32_t empty_row) {
        for (int i = 0; i < lanes; ++i) {
            const bool there = lanes * full + i < count;
            last_rows[i] = there ? start.rows[lanes * full + i] : empty_row;
            last_x[i] = there ? start.x[lanes * full + i] : T(0);
            if constexpr (outliers) last_s[i] = there ? start.s[lanes * full + i] : T(0);
        }
    }
    int64_t groups() const { return (count + lanes - 1) / lanes; }

    LS_INLINE Group<T> group(int64_t g) {
        if (g >= full) return {last_rows, last_x, last_s, last_out};
        const int64_t k = lanes * g;
        if constexpr (outliers) return {start.rows + k, start.x + k, start.s + k, start.out + k};
        return {start.rows + k, start.x + k, nullptr, nullptr};
    }
    // body(group, its place in the panel) for the groups first .. end-1; the panel starts at group `base`.
    template <class Body>
    LS_INLINE void over(int64_t first, int64_t end, int64_t base, Body body) {
        // one loop for both, so that the body is compiled once: first the groups that are full, then the last one
        int64_t g = first;
        for (int64_t stop = end < full ? end : full; g < end; stop = end) {
            Group<T> current = group(g);
            for (; g < stop; ++g) {
                body(current, g - base);
                current.rows += lanes;
                current.x += lanes;
                if constexpr (outliers) {
                    current.s += lanes;
                    current.out += lanes;
                }
            }
        }
    }
    // The entries are read in bursts, a column's share of each array in rotation, which the hardware does not foresee.
    LS_INLINE static void prefetch(const Group<T>& group) {
        constexpr int64_t ahead = 512;
        LS_PREFETCH(group.rows + ahead);
        LS_PREFETCH(group.x + ahead);
        if constexpr (outliers) {
            LS_PREFETCH(group.s + ahead);
            LS_PREFETCH(group.out + ahead);
        }
    }
    void finish_out() const {
        for (int64_t k = lanes * full; k < count; ++k) start.out[k] = last_out[k % lanes];
    }
};

template <class Panel, int R, class T>
void sweep_columns(const SweepArgs& args, int64_t begin, int64_t end, double* G, double* VVt, SweepSums& sums,
                   double* memory) {
    using Pack = typename Panel::Pack;
    constexpr int lanes = Panel::lanes;
    const auto splat = [](double x) LS_ALWAYS { return splat_as<Pack>(x); };
    const int r = R ? R : args.r, length = row_length(r), padded = args.padded;
    double* v = memory;
    double* v_new = v + length;
    double* moments = v_new + length;
    Panel panel(memory + (3 * length + 7) / 8 * 8, r, panel_capacity(padded));  // on a cache line
    for (int a = 0; a < length; ++a) v[a] = v_new[a] = 0.0;
    const int64_t capacity = panel_capacity(padded) / lanes;  // groups, a multiple of gram_piece
    const double l2 = args.lambda2;
    const Pack threshold = splat(args.gamma * args.t_S), step = splat(args.t_S);
    const Pack on_omega = splat(1.0 - l2), off_omega = splat(l2);
    const Rule rule = args.rule;
    // l2/2 |P_rest(U v)|^2 = l2/2 (|v|^2 - |U_j v|^2), where |U_j v|^2 follows from A v = b
    const double share = l2 / (1.0 - l2);
    const auto regulariser = [&](const double* v, double vb) {
        double vv = 0.0;
        for (int a = 0; a < r; ++a) vv += v[a] * v[a];
        return 0.5 * share * (vv - vb);
    };

    // What a column adds to the gradient: R = (1 - l2) (e - x + S) - l2 (x - S), and G += R v^T.
    struct Adding {
        typename Panel::Coefficients coefficients;
        typename Panel::Row row;
        Pack misfit = splat_as<Pack>(0.0);
        Adding(const double* v, int r, int padded) : coefficients(v, r), row(v, padded) {}
    };
    const auto add_gradient = [&](const Group<T>& group, int64_t g, Adding& adding) LS_ALWAYS {
        const Pack y = panel.y(g), d = panel.times(g, adding.coefficients) - y;
        adding.misfit += d * d;
        Panel::scatter(G, group.rows, on_omega * d - off_omega * y, adding.row, padded);
    };
    // What a column that is whole in the panel adds to G may wait until the next column is gathered, whose groups take the
    // places of its groups one by one: so the processor always has something to do while it waits for rows of U or G.
    Column<T, true, lanes> last(args.columns, begin);
    int64_t waiting = 0;  // groups of it

    for (int64_t j = begin; j < end; ++j) {
        Column<T, true, lanes> column(args.columns, j, static_cast<const T*>(args.S), static_cast<T*>(args.S_out));
        const int64_t groups = column.groups();
        const bool whole = groups <= capacity;

        // body(group, its place in the panel) over all groups. A long column passes through the panel in pieces, gathered
        // anew for every such loop, y from the s that holds by then.
        const auto over_groups = [&](auto newest, auto body) LS_ALWAYS {
            for (int64_t chunk = 0; chunk < groups; chunk += capacity) {
                const int64_t end = groups - chunk < capacity ? groups : chunk + capacity;
                if (!whole)
                    column.over(chunk, end, chunk, [&](const Group<T>& group, int64_t at) LS_ALWAYS {
                        panel.gather(at, args.U, group.rows, load_as<Pack>(group.x) - load_as<Pack>(newest(group)));
                    });
                column.over(chunk, end, chunk, body);
            }
        };

        // [(1 - l2) U_j^T U_j + l2 I] v = U_j^T (x - s)
        panel.clear_normal();
        Adding adding(v_new, r, padded);
        const auto add_last = [&](const Group<T>& group, int64_t g) LS_ALWAYS { add_gradient(group, g, adding); };
        const int64_t together = !whole ? 0 : groups < waiting ? groups : waiting;
        if constexpr (Panel::interleaved) last.over(together, waiting, 0, add_last);
        const auto beside = [&](int64_t g) LS_ALWAYS {
            if (Panel::interleaved && g < together) add_last(last.group(g), g);
        };
        const int64_t piece = Panel::one_tile ? capacity : gram_piece;
        for (int64_t first = 0; first < groups; first += piece) {
            const int64_t end = groups - first < piece ? groups : first + piece;
            const int64_t base = first / capacity * capacity;
            if (end > column.full) column.fill_last(int32_t(args.columns.m));
            panel.add_normal(column, first, end, base, args.U, beside);
        }
        waiting = 0;
        if constexpr (Panel::interleaved) sums.smooth_out += 0.5 * sum(adding.misfit);
        const double vb = panel.solve(1.0 - l2, l2, v);

        Pack misfit = splat(0.0);
        const double* v_final = v;
        const typename Panel::Coefficients coefficients(v, r);
        const auto old_s = [](const Group<T>& group) LS_ALWAYS { return group.s; };
        const auto new_s = [](const Group<T>& group) LS_ALWAYS { return group.out; };
        if (rule == Rule::fit) {
            over_groups(old_s, [&](const Group<T>&, int64_t g) LS_ALWAYS {
                const Pack d = panel.times(g, coefficients) - panel.y(g);
                misfit += d * d;
            });
        } else {
            Pack l1 = splat(0.0), dS2 = splat(0.0);
            // S+ = soft(S - t_S d, gamma t_S), where d = e - x + S = grad_S f; gives back S+ - S
            const auto shrink = [&](const Group<T>& group, Pack d) LS_ALWAYS {
                const Pack s = load_as<Pack>(group.s), at = s - step * d;
                const Pack s_new = as_stored(at - clip(at, threshold), group.out), change = s_new - s;
                store(group.out, s_new);
                misfit += d * d;
                l1 += absolute(s_new);
                dS2 += change * change;
                return change;
            };
            if (rule == Rule::manpg) {
                const typename Panel::Row row(v, padded);
                over_groups(old_s, [&](const Group<T>& group, int64_t g) LS_ALWAYS {
                    const Pack y = panel.y(g), d = panel.times(g, coefficients) - y;
                    shrink(group, d);
                    Panel::scatter(G, group.rows, on_omega * d - off_omega * y, row, padded);
                });
            } else {
                typename Panel::Moments right_side(moments, r);
                over_groups(old_s, [&](const Group<T>& group, int64_t g) LS_ALWAYS {
                    const Pack y = panel.y(g), d = panel.times(g, coefficients) - y, y_new = y - shrink(group, d);
                    panel.set_y(g, y_new);
                    panel.add_moments(g, y_new, right_side);
                });
                const double vb_new = panel.solve_again(right_side, v_new);
                v_final = v_new;
                if (Panel::interleaved && whole) {
                    last = column;
                    waiting = groups;
                } else {
                    Adding adding(v_new, r, padded);
                    over_groups(new_s, [&](const Group<T>& group, int64_t g) LS_ALWAYS { add_gradient(group, g, adding); });
                    sums.smooth_out += 0.5 * sum(adding.misfit);
                }
                sums.smooth_out += regulariser(v_new, vb_new);
            }
            column.finish_out();
            sums.l1 += sum(l1);
            sums.dS2 += sum(dS2);
        }
        sums.smooth_in += 0.5 * sum(misfit) + regulariser(v, vb);
        if (args.V_previous != nullptr) {
            const double* previous = args.V_previous + j * r;
            for (int a = 0; a < r; ++a) {
                double difference = v_final[a];
                for (int b = 0; b < r; ++b) difference -= previous[b] * args.rotation[b * r + a];
                sums.dV2 += difference * difference;
            }
        }
        for (int a = 0; a < r; ++a) {
            args.V[j * r + a] = v_final[a];
            const pack va = splat_as<pack>(v_final[a]);
            for (int b = 0; b < length; b += 4) {
                double* products = VVt + a * length + b;
                store(products, load(products) + va * load(v_final + b));
            }
        }
    }
    if constexpr (Panel::interleaved) {
        Adding adding(v_new, r, padded);
        last.over(0, waiting, 0, [&](const Group<T>& group, int64_t g) LS_ALWAYS { add_gradient(group, g, adding); });
        sums.smooth_out += 0.5 * sum(adding.misfit);
    }
}

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
