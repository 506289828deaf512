// Sums over the rows of a tall matrix.
#pragma once
#include "normal.cuh"

// The packed upper triangle of AᵀA, then the sums of `extra` columns (each `rows` long, one after the other).
template <int R, int extra>
__global__ void __launch_bounds__(256) tall_gram(const double* A, const double* columns, int64 rows, double* out,
                                                 double* partial, int* tickets) {
    constexpr int normal = System<R>::size, N = normal + extra;
    __shared__ double sums[N], warp_sums[8 * N];
    const Group<256> group;
    double found[N];
#pragma unroll
    for (int k = 0; k < N; ++k) found[k] = 0.0;
    for (int64 i = int64(blockIdx.x) * 256 + group.rank; i < rows; i += int64(gridDim.x) * 256) {
        double row[R];
#pragma unroll
        for (int a = 0; a < R; ++a) row[a] = A[i * R + a];
#pragma unroll
        for (int a = 0; a < R; ++a)
#pragma unroll
            for (int b = a; b < R; ++b) found[System<R>::at(a, b)] = fma(row[a], row[b], found[System<R>::at(a, b)]);
#pragma unroll
        for (int k = 0; k < extra; ++k) found[normal + k] += columns[k * rows + i];
    }
    totals(group, found, warp_sums, sums);
    const Piece piece{0, 0, 0, 0, int(gridDim.x)};
    if (!joined(group, piece, N, sums, partial, tickets)) return;
    for (int k = group.rank; k < N; k += 256) out[k] = sums[k];
}

// out = (A + step H) B for a small matrix B (R x C), or A B; a thread for each row
template <int R, int C>
__global__ void tall_times(const double* A, const double* H, double step, Small<R * C> B, int64 rows, double* out) {
    const int64 i = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    double row[R];
#pragma unroll
    for (int a = 0; a < R; ++a) row[a] = H ? fma(step, H[i * R + a], A[i * R + a]) : A[i * R + a];
#pragma unroll
    for (int c = 0; c < C; ++c) {
        double sum = 0.0;
#pragma unroll
        for (int a = 0; a < R; ++a) sum = fma(row[a], B.numbers[a * C + c], sum);
        out[i * C + c] = sum;
    }
}

// out = (A + step H) R⁻¹ with RᵀR = I + step² HᵀH, whose HᵀH is given as its packed upper triangle; a thread for each row
template <int R>
__global__ void retracted(const double* A, const double* H, double step, const double* gram, int64 rows, double* out) {
    __shared__ double inverse[R * R];
    if (threadIdx.x == 0) {
        double root[System<R>::size], over[R];  // R, and one over its diagonal
#pragma unroll
        for (int a = 0; a < R; ++a)
#pragma unroll
            for (int b = a; b < R; ++b) root[System<R>::at(a, b)] = fma(step * step, gram[System<R>::at(a, b)], a == b ? 1.0 : 0.0);
#pragma unroll
        for (int k = 0; k < R; ++k) {
            over[k] = 1.0 / sqrt(root[System<R>::at(k, k)]);
#pragma unroll
            for (int j = k; j < R; ++j) root[System<R>::at(k, j)] *= over[k];
#pragma unroll
            for (int j = k + 1; j < R; ++j)
#pragma unroll
                for (int i = j; i < R; ++i)
                    root[System<R>::at(j, i)] -= root[System<R>::at(k, j)] * root[System<R>::at(k, i)];
        }
#pragma unroll
        for (int c = 0; c < R; ++c) {
            double column[R];
#pragma unroll
            for (int a = R - 1; a >= 0; --a) {
                double sum = a == c ? 1.0 : 0.0;
#pragma unroll
                for (int b = a + 1; b < R; ++b)
                    if (b <= c) sum -= root[System<R>::at(a, b)] * column[b];
                column[a] = a <= c ? sum * over[a] : 0.0;
                inverse[a * R + c] = column[a];
            }
        }
    }
    __syncthreads();
    const int64 i = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    double row[R];
#pragma unroll
    for (int a = 0; a < R; ++a) row[a] = fma(step, H[i * R + a], A[i * R + a]);
#pragma unroll
    for (int c = 0; c < R; ++c) {
        double sum = 0.0;
#pragma unroll
        for (int a = 0; a <= c; ++a) sum = fma(row[a], inverse[a * R + c], sum);
        out[i * R + c] = sum;
    }
}
