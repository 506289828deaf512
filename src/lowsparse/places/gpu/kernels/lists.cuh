// Copies of lines, what is known of every entry by its line, and which numbers are large.
#pragma once
#include "common.cuh"

// How many threads of the block before this one have chosen, and how many have in all; there are 256.
__device__ inline int chosen_before(bool chosen, int* by_warp, int& all) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned which = __ballot_sync(0xffffffffu, chosen);
    if (lane == 0) by_warp[warp] = __popc(which);
    __syncthreads();
    int before = __popc(which & ((1u << lane) - 1u));
    all = 0;
    for (int w = 0; w < 8; ++w) {
        before += w < warp ? by_warp[w] : 0;
        all += by_warp[w];
    }
    __syncthreads();
    return before;
}

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

// Of each line the entries whose index has a place, which becomes their index: a block takes a line. If there is nowhere to
// write them to, they are counted.
template <class T>
__global__ void __launch_bounds__(256) take_across(const int64* start, const int* index, const T* values, const int* place,
                                                   int* counts, const int64* start_out, int* index_out, T* values_out) {
    __shared__ int by_warp[8];
    const int64 first = start[blockIdx.x], end = start[blockIdx.x + 1];
    int64 written = index_out ? start_out[blockIdx.x] : 0;
    for (int64 tile = first; tile < end; tile += 256) {
        const int64 k = tile + threadIdx.x;
        const int to = k < end ? place[index[k]] : -1;
        int all;
        const int before = chosen_before(to >= 0, by_warp, all);
        if (index_out && to >= 0) {
            index_out[written + before] = to;
            values_out[written + before] = values[k];
        }
        written += all;
    }
    if (!index_out && threadIdx.x == 0) counts[blockIdx.x] = int(written);
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

// For each block: the largest magnitude of its values, then for each block the sum of their squares, each cut off at ±clip.
template <class T>
__global__ void __launch_bounds__(256) magnitudes(const T* values, int64 many, double clip, double* out) {
    __shared__ double room[8], most[8], sum[1];
    const Group<256> group;
    double largest = 0.0, squares[1] = {0.0};
    for (int64 k = int64(blockIdx.x) * 256 + threadIdx.x; k < many; k += int64(gridDim.x) * 256) {
        const double size = fabs(double(values[k])), cut = fmin(size, clip);
        largest = fmax(largest, size);
        squares[0] = fma(cut, cut, squares[0]);
    }
    for (int half = 16; half > 0; half /= 2) largest = fmax(largest, __shfl_xor_sync(0xffffffffu, largest, half));
    if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = largest;
    totals(group, squares, room, sum);
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < 8; ++warp) largest = fmax(largest, most[warp]);
        out[blockIdx.x] = largest;
        out[gridDim.x + blockIdx.x] = sum[0];
    }
}

// Where the magnitude exceeds the bound. A block takes `length` numbers, a multiple of 256. If `places` are given, they are
// written from starts[block] on, ascending; else the block's number of them is.
template <class T>
__global__ void __launch_bounds__(256) beyond(const T* numbers, int64 many, double bound, int length, int* counts,
                                              const int64* starts, int64* places) {
    __shared__ int by_warp[8];
    const int64 first = int64(blockIdx.x) * length;
    int64 written = places ? starts[blockIdx.x] : 0;
    for (int64 k = first + threadIdx.x; k - threadIdx.x < first + length; k += 256) {
        const bool large = k < many && fabs(double(numbers[k])) > bound;
        int all;
        const int before = chosen_before(large, by_warp, all);
        if (places && large) places[written + before] = k;
        written += all;
    }
    if (!places && threadIdx.x == 0) counts[blockIdx.x] = int(written);
}
