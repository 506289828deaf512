// The proximal sweep, given U: for each line solve for v, shrink S, solve again; and the gradient, row by row.
#pragma once
#include "normal.cuh"

enum Rule { fit = 0, manpg = 1, amanpg = 2 };

// Numbers of S that each of the threads asks for before the equations are solved: memory answers meanwhile.
__host__ __device__ constexpr int asked_early(int threads) { return threads == 32 ? 3 : 8; }

// S+ = soft(S - t d, γ t), as it is stored
template <class T>
__device__ __forceinline__ T shrunk(double at, double threshold) {
    return T(at - fmin(fmax(at, -threshold), threshold));
}

// l2/2 ‖P_rest(U v)‖² = l2/2 (‖v‖² - ‖U_j v‖²), where ‖U_j v‖² follows from A v = b
template <int R>
__device__ double regulariser(const double (&v)[R], double vb, double l2) {
    double vv = 0.0;
#pragma unroll
    for (int a = 0; a < R; ++a) vv += v[a] * v[a];
    return 0.5 * l2 / (1.0 - l2) * (vv - vb);
}

// The phases: 0 solves for v, 1 shrinks S (and solves again), 2 writes what the gradient is the product of to `rest`.
// Of a line in pieces one phase at a time is done. `both` has v before and after the shrinking side by side. `sums` has
// five numbers a line: f(U, S), f(U, S+) (or what it has besides the misfit), ‖S+‖₁, ‖S+ - S‖², ‖v - rotation v'‖².
template <int R, class T, int threads, bool cut>
__global__ void __launch_bounds__(threads < least_block ? least_block : threads, resident<R, threads>())
sweep(const int* lines, const int64* firsts, const int* bases, int many, int length, int capacity, const int64* start,
      const int* index, const T* values, const double* U, const T* S, T* S_out, double* V, double* both, double* rest,
      const double* V_previous, Small<R * R> rotation, double gamma, double t_S, double l2, int rule, int first_phase,
      int last_phase, double* line_sums, int64 n, double* partial, double* stored, int* tickets) {
    constexpr int normal = System<R>::size, N = normal + R, again = R + 3;
    constexpr int most = N > again ? N : again;
    extern __shared__ double2 memory[];
    const Group<threads> group;
    if (group.number >= many) return;
    constexpr int kept = normal + R, room = ((Group<threads>::warps + 1) * most + kept + R + 1) / 2 * 2;
    double* sums = reinterpret_cast<double*>(memory) + int64(group.slice) * (room + panel_words(R, capacity));
    double *warp_sums = sums + most, *factors = warp_sums + Group<threads>::warps * most, *v_shared = factors + kept;
    double* panel = sums + room;

    const Work work{lines, firsts, bases, many, length};
    const Piece piece = piece_of<cut>(work, start, group.number);
    const T *x = values + piece.first, *s = S + piece.first;
    T* s_out = S_out ? S_out + piece.first : nullptr;
    const int* rows = index + piece.first;
    const bool whole = piece.count <= capacity;
    const int64 line = piece.line;
    const double threshold = gamma * t_S;
    const auto old_y = [&](int k) { return double(__ldg(x + k)) - double(__ldg(s + k)); };
    const auto new_y = [&](int k) { return double(__ldg(x + k)) - double(s_out[k]); };
    const bool leads = group.rank < 32;
    const double prior = V_previous && group.rank < R ? V_previous[line * R + group.rank] : 0.0;
    const bool there = !cut && whole;
    double v[R], f_in = 0.0;
    constexpr int early = asked_early(threads);
    T old[early];

    if (first_phase == 0) {  // [(1 - l2) U_jᵀU_j + l2 I] v = U_jᵀ (x - s)
        double found[N];
#pragma unroll
        for (int k = 0; k < N; ++k) found[k] = 0.0;
        over_entries<R, R <= 5 ? 8 : 4>(group, panel, capacity, U, rows, piece.count, false, old_y, [&](int, const double(&u)[R], double y) {
#pragma unroll
            for (int a = 0; a < R; ++a) {
                found[normal + a] = fma(u[a], y, found[normal + a]);
#pragma unroll
                for (int b = a; b < R; ++b) found[System<R>::at(a, b)] = fma(u[a], u[b], found[System<R>::at(a, b)]);
            }
        });
        group.sync();
        totals(group, found, warp_sums, sums);
        if constexpr (cut) {
            if (!joined(group, piece, N, sums, partial, tickets)) return;
        } else if (there && rule != fit) {
#pragma unroll
            for (int q = 0; q < early; ++q)
                old[q] = group.rank + q * threads < piece.count ? __ldg(s + group.rank + q * threads) : T(0);
        }
        if (leads) {
            System<R> system;
            system.factor(sums, 1.0 - l2, l2);
            const double vb = system.solve(sums + normal, v);
            f_in = regulariser<R>(v, vb, l2);
            if (group.rank == 0) {
                if (rule == amanpg) system.keep(cut ? stored + int64(piece.base) * kept : factors);
                if (cut) line_sums[line] = f_in;
#pragma unroll
                for (int a = 0; a < R; ++a) v_shared[a] = v[a];
            }
            __syncwarp();
            if (group.rank < R) {
                if (both) both[line * 2 * R + group.rank] = v_shared[group.rank];
                if (cut) V[line * R + group.rank] = v_shared[group.rank];
            }
        }
        group.sync();
    } else {
        for (int a = group.rank; a < R; a += threads) v_shared[a] = V[line * R + a];
        group.sync();
    }

    if (first_phase <= 1 && last_phase >= 1) {
#pragma unroll
        for (int a = 0; a < R; ++a) v[a] = v_shared[a];
        double found[again];  // the new right-hand side, the misfit, ‖S+‖₁, ‖S+ - S‖²
#pragma unroll
        for (int k = 0; k < again; ++k) found[k] = 0.0;
        const auto shrink = [&](int k, const double(&u)[R], double& y, double before) {
            const double d = dot(u, v) - y;
            found[R] += d * d;
            if (rule == fit) return;
            const T stored = shrunk<T>(before - t_S * d, threshold);
            const double after = stored, change = after - before;
            s_out[k] = stored;
            found[R + 1] += fabs(after);
            found[R + 2] += change * change;
            if (rule == manpg) {
                rest[piece.first + k] = (1.0 - l2) * d - l2 * y;
                return;
            }
            const double y_new = y = y - change;
#pragma unroll
            for (int a = 0; a < R; ++a) found[a] = fma(u[a], y_new, found[a]);
        };
        if (there && rule != fit) {
            double* beside = panel + capacity * row_stride(R);
            double u[R];
#pragma unroll
            for (int q = 0; q < early; ++q) {
                const int k = group.rank + q * threads;
                if (k >= piece.count) continue;
                load_row<R>(panel + k * row_stride(R), u);
                shrink(k, u, beside[k], old[q]);
            }
            for (int k = group.rank + early * threads; k < piece.count; k += threads) {
                load_row<R>(panel + k * row_stride(R), u);
                shrink(k, u, beside[k], __ldg(s + k));
            }
            __syncwarp();
        } else {
            const auto ask = [&](int k, const double(&u)[R], double& y) { shrink(k, u, y, rule == fit ? 0.0 : __ldg(s + k)); };
            over_entries<R, R <= 5 ? 8 : 4>(group, panel, capacity, U, rows, piece.count, there, old_y, ask);
        }
        group.sync();
        totals(group, found, warp_sums, sums);
        if constexpr (cut) {
            if (!joined(group, piece, again, sums, partial, tickets)) return;
            f_in = line_sums[line];
        }
        if (leads) {
            double f_out = 0.0;
            if (rule == amanpg) {
                System<R> system;
                system.take(cut ? stored + int64(piece.base) * kept : factors);
                const double vb = system.solve(sums, v);
                f_out = regulariser<R>(v, vb, l2);
            }
            if (group.rank == 0) {
                line_sums[line] = 0.5 * sums[R] + f_in;
                line_sums[n + line] = f_out;
                line_sums[2 * n + line] = sums[R + 1];
                line_sums[3 * n + line] = sums[R + 2];
#pragma unroll
                for (int a = 0; a < R; ++a) v_shared[a] = v[a];
            }
            __syncwarp();
            double difference = group.rank < R ? v_shared[group.rank] : 0.0;  // v - rotation v', a thread for each number
#pragma unroll
            for (int b = 0; b < R; ++b) {
                const double before = __shfl_sync(0xffffffffu, prior, b);
                if (group.rank < R) difference -= rotation.numbers[group.rank * R + b] * before;
            }
            double moved = 0.0;
#pragma unroll
            for (int a = 0; a < R; ++a) {
                const double part = __shfl_sync(0xffffffffu, difference, a);
                moved += part * part;
            }
            if (group.rank == 0) line_sums[4 * n + line] = V_previous ? moved : 0.0;
            if (group.rank < R) {
                if (both) both[line * 2 * R + R + group.rank] = v_shared[group.rank];
                V[line * R + group.rank] = v_shared[group.rank];
            }
        }
        group.sync();
    }

    if (last_phase >= 2) {  // R = (1 - l2) (e - x + S) - l2 (x - S), at the new v and S
#pragma unroll
        for (int a = 0; a < R; ++a) v[a] = v_shared[a];
        double found[1] = {0.0};
        over_entries<R, R <= 5 ? 8 : 4>(group, panel, capacity, U, rows, piece.count, there, new_y, [&](int k, const double(&u)[R], double y) {
            const double d = dot(u, v) - y;
            found[0] += d * d;
            rest[piece.first + k] = (1.0 - l2) * d - l2 * y;
        });
        group.sync();
        totals(group, found, warp_sums, sums);
        if constexpr (cut)
            if (!joined(group, piece, 1, sums, partial, tickets)) return;
        if (group.rank == 0) line_sums[n + line] += 0.5 * sums[0];
    }
}

// The gradient of AManPG with t_S = 1, row by row. S+ = soft(x - U v, γ) does not depend on S then, and is computed
// anew from the v before the shrinking: nothing as long as Ω is read but x and where it is.
// G_i = Σ_j R_ij v_j + l2 (U V Vᵀ)_i, and the misfit of the row.
template <int R, class T, int threads, bool cut>
__global__ void __launch_bounds__(threads < least_block ? least_block : threads)
gradient_rows(const int* lines, const int64* firsts, const int* bases, int many, int length, int capacity,
              const int64* start, const int* index, const T* values, const double* U, const double* both, double gamma,
              double l2, const double* VVt, double* G, double* misfits, double* partial, int* tickets) {
    extern __shared__ double2 memory[];
    if (Group<threads>().number >= many) return;
    const Line<R + 1, 2 * R, threads, cut> line(memory, {lines, firsts, bases, many, length}, capacity, start);
    double own[R], found[R + 1] = {};
    own_row(U, line.piece.line, own);
    line.over(both, index, [&](int k) { return double(__ldg(values + line.piece.first + k)); },
              [&](int, const double(&pair)[2 * R], double value) {
                  double before[R], after[R];
#pragma unroll
                  for (int a = 0; a < R; ++a) before[a] = pair[a], after[a] = pair[R + a];
                  const double y = value - double(shrunk<T>(value - dot(before, own), gamma));
                  const double d = dot(after, own) - y, rest = (1.0 - l2) * d - l2 * y;
                  found[R] += d * d;
#pragma unroll
                  for (int a = 0; a < R; ++a) found[a] = fma(rest, after[a], found[a]);
              });
    if (!line.summed(found, partial, tickets)) return;
    for (int a = line.group.rank; a < R; a += threads) {
        double g = 0.0;
#pragma unroll
        for (int b = 0; b < R; ++b) g += own[b] * VVt[a < b ? System<R>::at(a, b) : System<R>::at(b, a)];
        G[int64(line.piece.line) * R + a] = line.sums[a] + l2 * g;
    }
    if (line.group.rank == 0) misfits[line.piece.line] = line.sums[R];
}
