// Copies of lines, and of what is known of every entry by its line.
#pragma once
#include "common.cuh"

// Some lines, one after the other: a block copies a line.
template <class T>
__global__ void take_lines(const int64* start, const int* index, const T* values, const int64* which, const int64* start_out,
                           int* index_out, T* values_out) {
    const int64 from = start[which[blockIdx.x]], to = start_out[blockIdx.x], count = start_out[blockIdx.x + 1] - to;
    for (int64 k = threadIdx.x; k < count; k += blockDim.x) {
        index_out[to + k] = index[from + k];
        values_out[to + k] = values[from + k];
    }
}

// The line of each entry.
template <class Int>
__global__ void owners(const int64* start, Int* out) {
    for (int64 k = start[blockIdx.x] + threadIdx.x; k < start[blockIdx.x + 1]; k += blockDim.x) out[k] = Int(blockIdx.x);
}

// How many entries have each index.
template <class Int>
__global__ void count_indices(const Int* index, int64 many, int* out) {
    for (int64 k = int64(blockIdx.x) * blockDim.x + threadIdx.x; k < many; k += int64(gridDim.x) * blockDim.x)
        atomicAdd(out + index[k], 1);
}
