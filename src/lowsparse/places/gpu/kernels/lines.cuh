// One pass over the lines, one vector of sums each: products, residuals, slopes of a loss, curvature.
#pragma once
#include "losses.cuh"
#include "normal.cuh"

// out = Sp(y)ᵀ A for each line: Σ y_k A[index_k], where y is in another order if `order` is given; + l2 own (V Vᵀ)
template <int R, class T, int threads, bool cut>
__global__ void __launch_bounds__(threads < least_block ? least_block : threads)
product(const int* lines, const int64* firsts, const int* bases, int many, int length, int capacity, const int64* start,
        const int* index, const T* y, const unsigned* order, const double* A, const double* own, const double* VVt,
        double l2, double* out, double* partial, int* tickets) {
    extern __shared__ double2 memory[];
    if (Group<threads>().number >= many) return;
    const Line<R, R, threads, cut> line(memory, {lines, firsts, bases, many, length}, capacity, start);
    double found[R] = {};
    line.over(A, index, [&](int k) { return double(order ? y[order[line.piece.first + k]] : y[line.piece.first + k]); },
              [&](int, const double(&u)[R], double number) {
#pragma unroll
                  for (int a = 0; a < R; ++a) found[a] = fma(number, u[a], found[a]);
              });
    if (!line.summed(found, partial, tickets)) return;
    for (int a = line.group.rank; a < R; a += threads) {
        double g = 0.0;
        if (own)
            for (int b = 0; b < R; ++b)
                g += own[int64(line.piece.line) * R + b] * VVt[a < b ? System<R>::at(a, b) : System<R>::at(b, a)];
        out[int64(line.piece.line) * R + a] = line.sums[a] + l2 * g;
    }
}

// out_k = A[index_k] . own, minus the value if `minus`
template <int R, class T, int threads, bool cut>
__global__ void __launch_bounds__(threads < least_block ? least_block : threads)
entries(const int* lines, const int64* firsts, const int* bases, int many, int length, int capacity, const int64* start,
        const int* index, const T* values, const double* A, const double* own, int minus, double* out) {
    extern __shared__ double2 memory[];
    if (Group<threads>().number >= many) return;
    const Line<1, R, threads, cut> line(memory, {lines, firsts, bases, many, length}, capacity, start);
    double v[R];
    own_row(own, line.piece.line, v);
    line.over(A, index, [&](int k) { return minus ? double(values[line.piece.first + k]) : 0.0; },
              [&](int k, const double(&u)[R], double x) { out[line.piece.first + k] = dot(u, v) - x; });
}

// With e = A[index] . own - x: out = Σ ψ(e) A[index], and Σ ρ(e), for each line
template <int R, class T, int threads, bool cut>
__global__ void __launch_bounds__(threads < least_block ? least_block : threads)
slopes(const int* lines, const int64* firsts, const int* bases, int many, int length, int capacity, const int64* start,
       const int* index, const T* values, const double* A, const double* own, int kind, double c, double p, double* out,
       double* line_values, double* partial, int* tickets) {
    extern __shared__ double2 memory[];
    if (Group<threads>().number >= many) return;
    const Line<R + 1, R, threads, cut> line(memory, {lines, firsts, bases, many, length}, capacity, start);
    const Loss loss(kind, c, p);
    double v[R], found[R + 1] = {};
    own_row(own, line.piece.line, v);
    const T* observed = values + line.piece.first;
    line.over(A, index, [&](int k) { return double(observed[k]); }, [&](int, const double(&u)[R], double x) {
        const double e = dot(u, v) - x, slope = loss.slope(e);
        if (line_values) found[R] += loss.value(e);
#pragma unroll
        for (int a = 0; a < R; ++a) found[a] = fma(slope, u[a], found[a]);
    });
    if (!line.summed(found, partial, tickets)) return;
    for (int a = line.group.rank; a < R; a += threads) out[int64(line.piece.line) * R + a] = line.sums[a];
    if (line_values && line.group.rank == 0) line_values[line.piece.line] = line.sums[R];
}

// Σ w(e) d² for each line: e = A[index] . own - x, d = A[index] . along
template <int R, class T, int threads, bool cut>
__global__ void __launch_bounds__(threads < least_block ? least_block : threads)
curvature(const int* lines, const int64* firsts, const int* bases, int many, int length, int capacity, const int64* start,
          const int* index, const T* values, const double* A, const double* own, const double* along, int kind, double c,
          double p, double* out, double* partial, int* tickets) {
    extern __shared__ double2 memory[];
    if (Group<threads>().number >= many) return;
    const Line<1, R, threads, cut> line(memory, {lines, firsts, bases, many, length}, capacity, start);
    const Loss loss(kind, c, p);
    double v[R], b[R], found[1] = {};
    own_row(own, line.piece.line, v);
    own_row(along, line.piece.line, b);
    const T* observed = values + line.piece.first;
    line.over(A, index, [&](int k) { return double(observed[k]); }, [&](int, const double(&u)[R], double x) {
        const double d = dot(u, b);
        found[0] += loss.weight(dot(u, v) - x) * d * d;
    });
    if (!line.summed(found, partial, tickets)) return;
    if (line.group.rank == 0) out[line.piece.line] = line.sums[0];
}
