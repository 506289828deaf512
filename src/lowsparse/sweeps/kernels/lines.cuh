// One pass over the lines, one vector of sums each: products, residuals, slopes of a loss, curvature.
#pragma once
#include "losses.cuh"
#include "normal.cuh"

// What a group needs to know, in all kernels of this file.
template <int N, int R, int threads>
struct Bench {
    double *sums, *warp_sums, *panel;
    __device__ Bench(double* memory, int slice, int capacity) {
        constexpr int room = ((Group<threads>::warps + 1) * N + 1) / 2 * 2;
        sums = memory + int64(slice) * (room + panel_words(R, capacity));
        warp_sums = sums + N, panel = sums + room;
    }
};

// out = Sp(y)ᵀ A for each line: Σ y_k A[index_k], where y is in another order if `order` is given; + l2 own (V Vᵀ)
template <int R, class T, int threads, bool cut>
__global__ void __launch_bounds__(threads < least_block ? least_block : threads)
product(const int* lines, const int64* firsts, const int* bases, int many, int length, int capacity, const int64* start,
        const int* index, const T* y, const unsigned* order, const double* A, const double* own, const double* VVt,
        double l2, double* out, double* partial, int* tickets) {
    extern __shared__ double2 memory[];
    const Group<threads> group;
    if (group.number >= many) return;
    const Bench<R, R, threads> bench(reinterpret_cast<double*>(memory), group.slice, capacity);
    const Work work{lines, firsts, bases, many, length};
    const Piece piece = piece_of<cut>(work, start, group.number);
    double found[R];
#pragma unroll
    for (int a = 0; a < R; ++a) found[a] = 0.0;
    over_entries<R, 4>(group, bench.panel, capacity, A, index + piece.first, piece.count, false,
                    [&](int k) { return double(order ? y[order[piece.first + k]] : y[piece.first + k]); },
                    [&](int, const double(&u)[R], double number) {
#pragma unroll
                        for (int a = 0; a < R; ++a) found[a] = fma(number, u[a], found[a]);
                    });
    group.sync();
    totals(group, found, bench.warp_sums, bench.sums);
    if constexpr (cut)
        if (!joined(group, piece, R, bench.sums, partial, tickets)) return;
    for (int a = group.rank; a < R; a += threads) {
        double g = 0.0;
        if (own)
            for (int b = 0; b < R; ++b)
                g += own[int64(piece.line) * R + b] * VVt[a < b ? System<R>::at(a, b) : System<R>::at(b, a)];
        out[int64(piece.line) * R + a] = bench.sums[a] + l2 * g;
    }
}

// out_k = A[index_k] . own, minus the value if `minus`
template <int R, class T, int threads, bool cut>
__global__ void __launch_bounds__(threads < least_block ? least_block : threads)
entries(const int* lines, const int64* firsts, const int* bases, int many, int length, int capacity, const int64* start,
        const int* index, const T* values, const double* A, const double* own, int minus, double* out) {
    extern __shared__ double2 memory[];
    const Group<threads> group;
    if (group.number >= many) return;
    const Bench<1, R, threads> bench(reinterpret_cast<double*>(memory), group.slice, capacity);
    const Work work{lines, firsts, bases, many, length};
    const Piece piece = piece_of<cut>(work, start, group.number);
    double v[R];
#pragma unroll
    for (int a = 0; a < R; ++a) v[a] = own[int64(piece.line) * R + a];
    over_entries<R, 4>(group, bench.panel, capacity, A, index + piece.first, piece.count, false,
                    [&](int k) { return minus ? double(values[piece.first + k]) : 0.0; },
                    [&](int k, const double(&u)[R], double x) { out[piece.first + k] = dot(u, v) - x; });
}

// With e = A[index] . own - x: out = Σ ψ(e) A[index], and Σ ρ(e), for each line
template <int R, class T, int threads, bool cut>
__global__ void __launch_bounds__(threads < least_block ? least_block : threads)
slopes(const int* lines, const int64* firsts, const int* bases, int many, int length, int capacity, const int64* start,
       const int* index, const T* values, const double* A, const double* own, int kind, double c, double p, double* out,
       double* line_values, double* partial, int* tickets) {
    constexpr int N = R + 1;
    extern __shared__ double2 memory[];
    const Group<threads> group;
    if (group.number >= many) return;
    const Bench<N, R, threads> bench(reinterpret_cast<double*>(memory), group.slice, capacity);
    const Work work{lines, firsts, bases, many, length};
    const Piece piece = piece_of<cut>(work, start, group.number);
    const Loss loss(kind, c, p);
    double v[R], found[N];
#pragma unroll
    for (int a = 0; a < R; ++a) v[a] = own[int64(piece.line) * R + a];
#pragma unroll
    for (int k = 0; k < N; ++k) found[k] = 0.0;
    over_entries<R, 4>(group, bench.panel, capacity, A, index + piece.first, piece.count, false,
                    [&](int k) { return double(values[piece.first + k]); },
                    [&](int, const double(&u)[R], double x) {
                        const double e = dot(u, v) - x, slope = loss.slope(e);
                        if (line_values) found[R] += loss.value(e);
#pragma unroll
                        for (int a = 0; a < R; ++a) found[a] = fma(slope, u[a], found[a]);
                    });
    group.sync();
    totals(group, found, bench.warp_sums, bench.sums);
    if constexpr (cut)
        if (!joined(group, piece, N, bench.sums, partial, tickets)) return;
    for (int a = group.rank; a < R; a += threads) out[int64(piece.line) * R + a] = bench.sums[a];
    if (line_values && group.rank == 0) line_values[piece.line] = bench.sums[R];
}

// Σ w(e) d² for each line: e = A[index] . own - x, d = A[index] . along
template <int R, class T, int threads, bool cut>
__global__ void __launch_bounds__(threads < least_block ? least_block : threads)
curvature(const int* lines, const int64* firsts, const int* bases, int many, int length, int capacity, const int64* start,
          const int* index, const T* values, const double* A, const double* own, const double* along, int kind, double c,
          double p, double* out, double* partial, int* tickets) {
    extern __shared__ double2 memory[];
    const Group<threads> group;
    if (group.number >= many) return;
    const Bench<1, R, threads> bench(reinterpret_cast<double*>(memory), group.slice, capacity);
    const Work work{lines, firsts, bases, many, length};
    const Piece piece = piece_of<cut>(work, start, group.number);
    const Loss loss(kind, c, p);
    double v[R], b[R], found[1] = {0.0};
#pragma unroll
    for (int a = 0; a < R; ++a) v[a] = own[int64(piece.line) * R + a], b[a] = along[int64(piece.line) * R + a];
    over_entries<R, 4>(group, bench.panel, capacity, A, index + piece.first, piece.count, false,
                    [&](int k) { return double(values[piece.first + k]); },
                    [&](int, const double(&u)[R], double x) {
                        const double d = dot(u, b);
                        found[0] += loss.weight(dot(u, v) - x) * d * d;
                    });
    group.sync();
    totals(group, found, bench.warp_sums, bench.sums);
    if constexpr (cut)
        if (!joined(group, piece, 1, bench.sums, partial, tickets)) return;
    if (group.rank == 0) out[piece.line] = bench.sums[0];
}
