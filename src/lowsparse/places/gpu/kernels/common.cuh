// What all kernels share: groups of threads that take a line each, sums in a fixed order, rows gathered into shared memory.
//
// A line is a column of the matrix, or a row of it in the row-sorted copy. A group is a warp (short lines) or a block. A
// very long line is cut into pieces, one group each; the last of them to arrive adds up what all have found, in the order
// of the pieces. No sum depends on the order in which threads run: results have the same bits every time.
#pragma once

typedef long long int64;

constexpr int least_block = 128;

// A small matrix that is handed over with the arguments of a kernel.
template <int size>
struct Small {
    double numbers[size];
};

// Doubles from one gathered row to the next: an odd number of the largest units that can be copied at once, so that
// neighbouring threads read neighbouring rows from different banks.
__host__ __device__ constexpr int row_stride(int r) { return r % 2 ? r : (r / 2 % 2 ? r : r + 2); }

template <int threads>
struct Group {
    static constexpr int warps = threads / 32;
    int rank, slice, number;  // thread in the group, group in the block, group in the grid
    __device__ Group()
        : rank(threadIdx.x % threads),
          slice(threadIdx.x / threads),
          number(blockIdx.x * (blockDim.x / threads) + threadIdx.x / threads) {}
    __device__ void sync() const {
        if (threads == 32)
            __syncwarp();
        else
            __syncthreads();
    }
};

// The part of a line that a group has to do.
struct Piece {
    int line, count;
    int64 first;
    int base, pieces;  // of a line in pieces: the number of its first, and how many there are
};

// lines: the line of each group (none: all of them in turn). Of lines in pieces also: the first entry of the piece, and the number of the first
// piece of its line; all pieces but the last of a line have `length` entries.
struct Work {
    const int* lines;
    const int64* firsts;
    const int* bases;
    int many, length;
};

template <bool cut>
__device__ Piece piece_of(const Work& work, const int64* start, int number) {
    const int line = work.lines ? work.lines[number] : number;
    const int64 begin = start[line], end = start[line + 1];
    if (!cut) return {line, int(end - begin), begin, number, 1};
    const int64 first = work.firsts[number];
    const int64 last = first + work.length < end ? first + work.length : end;
    return {line, int(last - first), first, work.bases[number], int((end - begin + work.length - 1) / work.length)};
}

// ---------------------------------------------------------------------- sums

__host__ __device__ constexpr int power_above(int n) { return n <= 1 ? 1 : 2 * power_above((n + 1) / 2); }

// At each step a thread hands half of its numbers to its partner: in the end thread k of a warp has the sum of number k.
template <int half, int width>
__device__ __forceinline__ void fold(double (&a)[width]) {
    if constexpr (half > 0) {
        const bool upper = threadIdx.x & half;
#pragma unroll
        for (int i = 0; i < half; ++i) {
            const double given = upper ? a[i] : a[i + half], kept = upper ? a[i + half] : a[i];
            a[i] = kept + __shfl_xor_sync(0xffffffffu, given, half);
        }
        fold<half / 2>(a);
    }
}

// The sums of up to 32 numbers over a warp.
template <int from, int n, int N>
__device__ __forceinline__ void warp_totals(const double (&numbers)[N], double* out) {
    constexpr int width = power_above(n);
    double a[width];
#pragma unroll
    for (int i = 0; i < width; ++i) a[i] = i < n ? numbers[from + (i < n ? i : 0)] : 0.0;
    fold<width / 2>(a);
#pragma unroll
    for (int half = width; half < 32; half *= 2) a[0] += __shfl_xor_sync(0xffffffffu, a[0], half);
    if (threadIdx.x % 32 < n) out[from + threadIdx.x % 32] = a[0];
}

template <int N, int from = 0>
__device__ __forceinline__ void all_warp_totals(const double (&numbers)[N], double* out) {
    if constexpr (from < N) {
        warp_totals<from, (N - from < 32 ? N - from : 32)>(numbers, out);
        all_warp_totals<N, from + 32>(numbers, out);
    }
}

// out[k] = the sum of numbers[k] over the group; `room` has N doubles for each of its warps.
template <int threads, int N>
__device__ __forceinline__ void totals(const Group<threads>& group, const double (&numbers)[N], double* room, double* out) {
    if (threads == 32) {
        all_warp_totals(numbers, out);
    } else {
        all_warp_totals(numbers, room + group.rank / 32 * N);
        group.sync();
        for (int k = group.rank; k < N; k += threads) {
            double sum = 0.0;
            for (int warp = 0; warp < threads / 32; ++warp) sum += room[warp * N + k];
            out[k] = sum;
        }
    }
    group.sync();
}

// Whether this group is the last of its line; if so, `sums` (N doubles) become those of the whole line.
template <int threads>
__device__ __forceinline__ bool joined(const Group<threads>& group, const Piece& piece, int N, double* sums, double* partial,
                                       int* tickets) {
    for (int k = group.rank; k < N; k += threads) partial[int64(group.number) * N + k] = sums[k];
    __threadfence();
    group.sync();
    __shared__ bool last;
    if (group.rank == 0) last = atomicAdd(tickets + piece.base, 1) == piece.pieces - 1;
    group.sync();
    if (!last) return false;
    __threadfence();
    for (int k = group.rank; k < N; k += threads) {
        double sum = 0.0;
#pragma unroll 8
        for (int p = 0; p < piece.pieces; ++p) sum += __ldcg(partial + int64(piece.base + p) * N + k);
        sums[k] = sum;
    }
    if (group.rank == 0) tickets[piece.base] = 0;
    group.sync();
    return true;
}

// ---------------------------------------------------------------------- rows gathered into shared memory

template <int bytes>
__device__ __forceinline__ void copy_ahead(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
    const unsigned place = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(place), "l"(from), "n"(bytes) : "memory");
#else
    if constexpr (bytes == 16)
        *static_cast<double2*>(to) = *static_cast<const double2*>(from);
    else
        *static_cast<double*>(to) = *static_cast<const double*>(from);
#endif
}

__device__ __forceinline__ void await_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// The rows index[0 .. count-1] of A (any x R) into the panel, and the numbers fill(k) beside them. Every warp gathers what it
// is going to read itself, entries k with k / 32 of its number, so that it waits for no other. A thread reads the index
// of one entry, and copies parts of the rows of all 32: neighbouring threads copy neighbouring parts. It has `ahead` such
// indices on their way at a time.
template <int R, int ahead, int threads, class Fill>
__device__ __forceinline__ void gather(const Group<threads>& group, double* panel, double* beside, const double* A,
                                       const int* index, int count, Fill fill) {
    constexpr int unit = R % 2 ? 1 : 2, units = R / unit;
    const int lane = threadIdx.x % 32;
    for (int first = group.rank - lane; first < count; first += ahead * threads) {
        int row[ahead];
        double number[ahead];
#pragma unroll
        for (int q = 0; q < ahead; ++q) {
            const int k = first + q * threads + lane;
            row[q] = k < count ? __ldg(index + k) : 0;
            number[q] = k < count ? fill(k) : 0.0;
        }
#pragma unroll
        for (int q = 0; q < ahead; ++q) {
            const int tile = first + q * threads;
            if (tile >= count) break;
#pragma unroll
            for (int p = 0; p < units; ++p) {
                const int entry = (32 * p + lane) / units, part = (32 * p + lane - entry * units) * unit;
                const int64 from = int64(__shfl_sync(0xffffffffu, row[q], entry)) * R + part;
                if (tile + entry < count) copy_ahead<8 * unit>(panel + (tile + entry) * row_stride(R) + part, A + from);
            }
            if (tile + lane < count) beside[tile + lane] = number[q];
        }
    }
    await_copies();
    __syncwarp();
}

template <int R>
__device__ __forceinline__ void load_row(const double* row, double (&u)[R]) {
    if constexpr (R % 2) {
#pragma unroll
        for (int a = 0; a < R; ++a) u[a] = row[a];
    } else {
#pragma unroll
        for (int a = 0; a < R; a += 2) {
            const double2 two = *reinterpret_cast<const double2*>(row + a);
            u[a] = two.x, u[a + 1] = two.y;
        }
    }
}

template <int R>
__device__ __forceinline__ double dot(const double (&u)[R], const double (&v)[R]) {
    double sum = 0.0;
#pragma unroll
    for (int a = 0; a < R; ++a) sum = fma(u[a], v[a], sum);
    return sum;
}

// body(k, u, y) for the entries k of a piece: u is the row of A that entry k sees, y = fill(k) a number that is kept beside
// it. A piece that does not fit passes through the panel in parts. `there` says that the panel holds the whole piece.
template <int R, int ahead, int threads, class Fill, class Body>
__device__ __forceinline__ void over_entries(const Group<threads>& group, double* panel, int capacity, const double* A,
                                             const int* index, int count, bool there, Fill fill, Body body) {
    double* beside = panel + capacity * row_stride(R);
    for (int part = 0; part < count; part += capacity) {
        const int size = count - part < capacity ? count - part : capacity;
        if (!there) gather<R, ahead>(group, panel, beside, A, index + part, size, [&](int k) { return fill(part + k); });
        for (int k = group.rank; k < size; k += threads) {
            double u[R];
            load_row<R>(panel + k * row_stride(R), u);
            body(part + k, u, beside[k]);
        }
        __syncwarp();  // threads without a last entry must not run ahead to the next barrier of the block
    }
}

// Doubles that a group keeps: `room` for its sums, and the panel.
__host__ __device__ constexpr int panel_words(int r, int capacity) { return capacity * (row_stride(r) + 1) + capacity % 2; }

// A line, or a piece of one, in the hands of a group: one pass over its entries and N sums, for which there is shared memory.
template <int N, int R, int threads, bool cut>
struct Line {
    const Group<threads> group;
    const int capacity;
    const Piece piece;
    double *sums, *warp_sums, *panel;

    __device__ __forceinline__ Line(double2* memory, const Work& work, int capacity, const int64* start)
        : capacity(capacity), piece(piece_of<cut>(work, start, group.number)) {
        constexpr int room = ((Group<threads>::warps + 1) * N + 1) / 2 * 2;
        sums = reinterpret_cast<double*>(memory) + int64(group.slice) * (room + panel_words(R, capacity));
        warp_sums = sums + N, panel = sums + room;
    }
    // body(k, u, fill(k)) for its entries
    template <class Fill, class Body>
    __device__ __forceinline__ void over(const double* A, const int* index, Fill fill, Body body) const {
        over_entries<R, 4>(group, panel, capacity, A, index + piece.first, piece.count, false, fill, body);
    }
    // Whether this group has `sums` of the whole line in the end: of what its threads have found, and those of other pieces.
    __device__ __forceinline__ bool summed(const double (&found)[N], double* partial, int* tickets) const {
        group.sync();
        totals(group, found, warp_sums, sums);
        if constexpr (cut) return joined(group, piece, N, sums, partial, tickets);
        return true;
    }
};

// Row `line` of a matrix with R columns.
template <int R>
__device__ __forceinline__ void own_row(const double* A, int line, double (&v)[R]) {
#pragma unroll
    for (int a = 0; a < R; ++a) v[a] = A[int64(line) * R + a];
}
