// The r x r normal equations of one line, in the registers of a thread: A = Rᵀ D R once, then any right-hand side.
#pragma once
#include "common.cuh"

// A pivot this small against its diagonal entry is rounding: the line does not see that direction, which is dropped.
constexpr double pivot_tolerance = 1e-13;

// Blocks that a multiprocessor should hold at once: small systems leave the registers for it.
template <int R, int threads>
__host__ __device__ constexpr int resident() {
    return R > 5 ? 1 : threads == 256 ? 2 : 4;
}

template <int R>
struct System {
    static constexpr int size = R * (R + 1) / 2;  // of the packed upper triangle, row by row
    static __host__ __device__ constexpr int at(int a, int b) { return a * R - a * (a - 1) / 2 + b - a; }

    double upper[R * (R + 1) / 2], inverse[R];  // unit upper triangle R; 1 / D, or 0 for a dropped direction

    // A = keep G + ridge I
    __device__ void factor(const double* gram, double keep, double ridge) {
#pragma unroll
        for (int k = 0; k < R; ++k) {
#pragma unroll
            for (int j = k; j < R; ++j) upper[at(k, j)] = keep * gram[at(k, j)];
            upper[at(k, k)] += ridge;
            inverse[k] = pivot_tolerance * upper[at(k, k)];
        }
#pragma unroll
        for (int k = 0; k < R; ++k) {
            inverse[k] = upper[at(k, k)] > inverse[k] ? 1.0 / upper[at(k, k)] : 0.0;
            double row[R];
#pragma unroll
            for (int j = k + 1; j < R; ++j) row[j] = upper[at(k, j)];
#pragma unroll
            for (int j = k + 1; j < R; ++j) {
                const double l = row[j] * inverse[k];
                upper[at(k, j)] = l;
#pragma unroll
                for (int i = j; i < R; ++i) upper[at(j, i)] -= l * row[i];
            }
        }
    }
    __device__ void keep(double* place) const {  // size + R numbers
#pragma unroll
        for (int k = 0; k < size; ++k) place[k] = upper[k];
#pragma unroll
        for (int k = 0; k < R; ++k) place[size + k] = inverse[k];
    }
    __device__ void take(const double* place) {
#pragma unroll
        for (int k = 0; k < size; ++k) upper[k] = place[k];
#pragma unroll
        for (int k = 0; k < R; ++k) inverse[k] = place[size + k];
    }
    // v = A⁻¹ b; gives back v . b
    __device__ double solve(const double* b, double (&v)[R]) const {
#pragma unroll
        for (int k = 0; k < R; ++k) v[k] = b[k];
#pragma unroll
        for (int k = 0; k < R; ++k)
#pragma unroll
            for (int j = k + 1; j < R; ++j) v[j] -= upper[at(k, j)] * v[k];
#pragma unroll
        for (int k = R - 1; k >= 0; --k) {
            v[k] *= inverse[k];
#pragma unroll
            for (int j = k + 1; j < R; ++j) v[k] -= upper[at(k, j)] * v[j];
        }
        double vb = 0.0;
#pragma unroll
        for (int k = 0; k < R; ++k) vb += v[k] * b[k];
        return vb;
    }
};
