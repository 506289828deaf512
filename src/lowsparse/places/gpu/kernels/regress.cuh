// Robust regression of every line: least squares under the weights of a loss, reweighted while its rows are at hand.
#pragma once
#include "losses.cuh"
#include "normal.cuh"

constexpr int magnitude_bins = 1024;

// Eight bins to a factor of two, from 2⁻⁶⁴ to 2⁶⁴.
__device__ inline int magnitude_bin(double e) {
    const int64 bin = (__double_as_longlong(fabs(e)) >> 49) - ((1023 - 64) << 3);
    return int(bin < 0 ? 0 : bin > magnitude_bins - 1 ? magnitude_bins - 1 : bin);
}

struct Regression {
    Loss loss;
    double first_c, ratio;
    int n_reweight;
    double shrink, ridge, largest, bound, per_unit;

    __device__ double width(int pass) const {  // c comes down geometrically, and ends where it should
        double c = first_c;
        for (int k = 0; k < pass; ++k) c *= ratio;
        return pass == n_reweight - 1 ? loss.c : c;
    }
    // what is added to the diagonal of the normal equations of a line with so much weight on so many entries
    __device__ double support(double weight, int64 count, int r, int64 others) const {
        const double lack = fmin(fmax(2.0 - weight / r, 0.0), 1.0);
        const double own = count ? ridge * weight / double(count) : 0.0;
        return own + (1e-10 + shrink * lack * lack * lack) * r / double(others);
    }
    __device__ bool unbelievable(double size2, double weight, int r) const {
        return size2 > largest * largest && weight < 1.25 * r + 1.0;
    }
};

// V becomes the fit. Of a line in pieces only the passes first_pass ... last_pass - 1 are made (one, as all pieces have to
// be there before the next), from V itself. `sampling` + 1 entries to one that is counted by its magnitude.
template <int R, class T, int threads, bool cut>
__global__ void __launch_bounds__(threads < least_block ? least_block : threads, resident<R, threads>())
regress(const int* lines, const int64* firsts, const int* bases, int many, int length, int capacity, const int64* start,
        const int* index, const T* values, int64 others, const double* U, const double* V_in, double* V, int64* inside,
        int* counts, int sampling, int kind, double first_c, double ratio, double c, double p, int n_reweight, double shrink,
        double ridge, double largest, double bound, double per_unit, int first_pass, int last_pass, double* partial, int* tickets) {
    constexpr int N = System<R>::size + R + 2, moments = System<R>::size, weights = moments + R, within = weights + 1;
    extern __shared__ double2 memory[];
    const Group<threads> group;
    if (group.number >= many) return;
    constexpr int room = ((Group<threads>::warps + 1) * N + R + 1) / 2 * 2;
    double* sums = reinterpret_cast<double*>(memory) + int64(group.slice) * (room + panel_words(R, capacity));
    double *warp_sums = sums + N, *v_shared = warp_sums + Group<threads>::warps * N, *panel = sums + room;

    const Regression options{Loss(kind, c, p), first_c, ratio, n_reweight, shrink, ridge, largest, bound, per_unit};
    const Work work{lines, firsts, bases, many, length};
    const Piece piece = piece_of<cut>(work, start, group.number);
    const T* x = values + piece.first;
    const double* guess = first_pass ? V : V_in;
    for (int a = group.rank; a < R; a += threads) v_shared[a] = guess ? guess[int64(piece.line) * R + a] : 0.0;
    group.sync();
    for (int pass = first_pass; pass < last_pass; ++pass) {
        const Loss loss(kind, options.width(pass), p);
        double v[R], found[N];
#pragma unroll
        for (int a = 0; a < R; ++a) v[a] = v_shared[a];
#pragma unroll
        for (int k = 0; k < N; ++k) found[k] = 0.0;
        const bool there = pass > first_pass && piece.count <= capacity;
        over_entries<R, R <= 5 ? 8 : 4>(group, panel, capacity, U, index + piece.first, piece.count, there,
                        [&](int k) { return double(__ldg(x + k)); },
                        [&](int k, const double(&u)[R], double value) {
                            const double e = dot(u, v) - value, w = loss.weight(e);
                            if (pass == 0 && ((piece.first + k) & sampling) == 0)
                                atomicAdd(counts + magnitude_bin(e * options.per_unit), 1);
                            found[weights] += w;
                            found[within] += fabs(e) <= options.bound ? 1.0 : 0.0;
#pragma unroll
                            for (int a = 0; a < R; ++a) {
                                const double wu = w * u[a];
                                found[moments + a] = fma(wu, value, found[moments + a]);
#pragma unroll
                                for (int b = a; b < R; ++b)
                                    found[System<R>::at(a, b)] = fma(wu, u[b], found[System<R>::at(a, b)]);
                            }
                        });
        group.sync();
        totals(group, found, warp_sums, sums);
        if constexpr (cut)
            if (!joined(group, piece, N, sums, partial, tickets)) return;
        if (group.rank < 32) {
            const double weight = sums[weights];
            System<R> system;
            system.factor(sums, 1.0, options.support(weight, start[piece.line + 1] - start[piece.line], R, others));
            system.solve(sums + moments, v);
            double size2 = 0.0;
#pragma unroll
            for (int a = 0; a < R; ++a) size2 += v[a] * v[a];
            if (options.unbelievable(size2, weight, R))
#pragma unroll
                for (int a = 0; a < R; ++a) v[a] = 0.0;
            if (group.rank == 0) {
#pragma unroll
                for (int a = 0; a < R; ++a) v_shared[a] = v[a];
                if (pass == n_reweight - 1) inside[piece.line] = int64(sums[within]);
            }
        }
        group.sync();
    }
    for (int a = group.rank; a < R; a += threads) V[int64(piece.line) * R + a] = v_shared[a];
}
