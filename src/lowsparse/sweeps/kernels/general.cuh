// Any rank: a block takes a line, and its normal equations are in shared memory. And what is asked of a line besides.
#pragma once
#include "losses.cuh"
#include "regress.cuh"
#include "sweep.cuh"

constexpr int general_threads = 256, general_part = 32;  // threads, and entries gathered at a time

// Shared memory of a block, for a rank r known when it runs.
struct GeneralRoom {
    int r;
    double *gram, *inverse, *moments, *v, *panel, *number, *weight, *few;
    __device__ GeneralRoom(double* memory, int r) : r(r) {
        gram = memory, inverse = gram + r * r, moments = inverse + r, v = moments + r, panel = v + r;
        number = panel + general_part * r, weight = number + general_part, few = weight + general_part;  // 4 numbers
    }
    __device__ void clear() const {
        for (int k = threadIdx.x; k < r * r; k += blockDim.x) gram[k] = 0.0;
        for (int a = threadIdx.x; a < r; a += blockDim.x) moments[a] = 0.0;
        if (threadIdx.x < 4) few[threadIdx.x] = 0.0;
        __syncthreads();
    }
    __device__ void gather(const double* U, const int* index, int size) const {
        __syncthreads();
        for (int k = threadIdx.x; k < size * r; k += blockDim.x) panel[k] = U[int64(index[k / r]) * r + k % r];
        __syncthreads();
    }
    // row . v for the entry of this warp, in all of its threads
    __device__ double dot(int entry) const {
        double sum = 0.0;
        for (int a = threadIdx.x % 32; a < r; a += 32) sum = fma(panel[entry * r + a], v[a], sum);
        for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
        return sum;
    }
    // moments += Σ weight number row; if `with_gram`, gram += Σ weight row rowᵀ
    __device__ void add(int size, bool with_gram) const {
        __syncthreads();
        for (int k = threadIdx.x; k < (with_gram ? r * r : 0); k += blockDim.x) {
            const int a = k / r, b = k % r;
            if (b < a) continue;
            double sum = 0.0;
            for (int e = 0; e < size; ++e) sum = fma(weight[e] * panel[e * r + a], panel[e * r + b], sum);
            gram[k] += sum;
        }
        for (int a = threadIdx.x; a < r; a += blockDim.x) {
            double sum = 0.0;
            for (int e = 0; e < size; ++e) sum = fma(weight[e] * panel[e * r + a], number[e], sum);
            moments[a] += sum;
        }
        __syncthreads();
    }
    // few[k] += the sum over the part of numbers that the first thread of each warp has written to `terms`
    __device__ void count(int which, const double* terms, int size) const {
        __syncthreads();
        if (threadIdx.x == 0)
            for (int e = 0; e < size; ++e) few[which] += terms[e];
        __syncthreads();
    }
    __device__ void factor(double keep, double ridge) const {
        for (int k = threadIdx.x; k < r * r; k += blockDim.x) gram[k] = keep * gram[k] + (k / r == k % r ? ridge : 0.0);
        __syncthreads();
        for (int a = threadIdx.x; a < r; a += blockDim.x) inverse[a] = pivot_tolerance * gram[a * r + a];
        __syncthreads();
        for (int k = 0; k < r; ++k) {
            const double pivot = gram[k * r + k];
            const double over = pivot > inverse[k] ? 1.0 / pivot : 0.0;
            __syncthreads();
            if (threadIdx.x == 0) inverse[k] = over;
            const int left = r - k - 1;
            for (int p = threadIdx.x; p < left * left; p += blockDim.x) {
                const int j = k + 1 + p / left, i = k + 1 + p % left;
                if (i >= j) gram[j * r + i] -= gram[k * r + j] * over * gram[k * r + i];
            }
            __syncthreads();
        }
    }
    // v = A⁻¹ b by the first warp; gives back v . b there
    __device__ double solve(const double* b) const {
        double vb = 0.0;
        if (threadIdx.x < 32) {
            for (int a = threadIdx.x; a < r; a += 32) v[a] = b[a];
            __syncwarp();
            for (int k = 0; k < r; ++k) {
                const double x = v[k] * inverse[k];
                for (int j = k + 1 + threadIdx.x; j < r; j += 32) v[j] -= gram[k * r + j] * x;
                __syncwarp();
                if (threadIdx.x == 0) v[k] = x;
                __syncwarp();
            }
            for (int k = r - 1; k >= 0; --k) {
                double sum = 0.0;
                for (int j = k + 1 + threadIdx.x; j < r; j += 32) sum = fma(gram[k * r + j], v[j], sum);
                for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
                if (threadIdx.x == 0) v[k] -= inverse[k] * sum;
                __syncwarp();
            }
            for (int a = threadIdx.x; a < r; a += 32) vb = fma(v[a], b[a], vb);
            for (int half = 16; half > 0; half /= 2) vb += __shfl_xor_sync(0xffffffffu, vb, half);
        }
        __syncthreads();
        return vb;
    }
    __device__ double size2() const {
        double sum = 0.0;
        for (int a = 0; a < r; ++a) sum = fma(v[a], v[a], sum);
        return sum;
    }
};

template <class T>
__global__ void __launch_bounds__(general_threads)
regress_general(int r, const int64* start, const int* index, const T* values, int64 others, const double* U,
                const double* V_in, double* V, int64* inside, int* counts, int sampling, int kind, double first_c, double ratio,
                double c, double p, int turns, double shrink, double ridge, double largest, double bound, double per_unit) {
    extern __shared__ double2 memory[];
    const GeneralRoom room(reinterpret_cast<double*>(memory), r);
    __shared__ double within[general_part];
    const Regression how{Loss(kind, c, p), first_c, ratio, turns, shrink, ridge, largest, bound, per_unit};
    const int64 line = blockIdx.x, first = start[line];
    const int count = int(start[line + 1] - first), warp = threadIdx.x / 32, warps = general_threads / 32;
    for (int a = threadIdx.x; a < r; a += blockDim.x) room.v[a] = V_in ? V_in[line * r + a] : 0.0;
    for (int turn = 0; turn < turns; ++turn) {
        const Loss loss(kind, how.width(turn), p);
        room.clear();
        for (int part = 0; part < count; part += general_part) {
            const int size = min(general_part, count - part);
            room.gather(U, index + first + part, size);
            for (int e = warp; e < size; e += warps) {
                const double x = values[first + part + e], rest = room.dot(e) - x;
                if (threadIdx.x % 32 == 0) {
                    if (turn == 0 && ((first + part + e) & sampling) == 0)
                        atomicAdd(counts + magnitude_bin(rest * how.per_unit), 1);
                    room.number[e] = x, room.weight[e] = loss.weight(rest), within[e] = fabs(rest) <= how.bound;
                }
            }
            room.add(size, true);
            room.count(0, room.weight, size);
            room.count(1, within, size);
        }
        const double weight = room.few[0];
        room.factor(1.0, how.support(weight, count, r, others));
        room.solve(room.moments);
        const bool wild = how.unbelievable(room.size2(), weight, r);
        __syncthreads();
        for (int a = threadIdx.x; a < r; a += blockDim.x) room.v[a] = wild ? 0.0 : room.v[a];
        __syncthreads();
    }
    for (int a = threadIdx.x; a < r; a += blockDim.x) V[line * r + a] = room.v[a];
    if (threadIdx.x == 0) inside[line] = int64(room.few[1]);
}

template <class T>
__global__ void __launch_bounds__(general_threads)
sweep_general(int r, const int64* start, const int* index, const T* values, const double* U, const T* S, T* S_out, double* V,
              double* rest, const double* V_before, const double* turn, double gamma, double t_S, double l2, int rule,
              double* line_sums, int64 n) {
    extern __shared__ double2 memory[];
    const GeneralRoom room(reinterpret_cast<double*>(memory), r);
    __shared__ double terms[3][general_part];
    const int64 line = blockIdx.x, first = start[line];
    const int count = int(start[line + 1] - first), warp = threadIdx.x / 32, warps = general_threads / 32;
    const bool leads = threadIdx.x % 32 == 0;
    const auto over = [&](auto body) {
        for (int part = 0; part < count; part += general_part) {
            const int size = min(general_part, count - part);
            room.gather(U, index + first + part, size);
            body(first + part, size);
        }
    };
    room.clear();
    over([&](int64 from, int size) {
        for (int e = threadIdx.x; e < size; e += blockDim.x)
            room.number[e] = double(values[from + e]) - double(S[from + e]), room.weight[e] = 1.0;
        room.add(size, true);
    });
    room.factor(1.0 - l2, l2);
    const double vb = room.solve(room.moments), share = 0.5 * l2 / (1.0 - l2);
    const double f_in = share * (room.size2() - vb);
    __syncthreads();
    for (int a = threadIdx.x; a < r; a += blockDim.x) room.moments[a] = 0.0;
    __syncthreads();
    over([&](int64 from, int size) {
        for (int e = warp; e < size; e += warps) {
            const double y = double(values[from + e]) - double(S[from + e]), d = room.dot(e) - y;
            if (!leads) continue;
            terms[0][e] = d * d, terms[1][e] = terms[2][e] = 0.0;
            if (rule == fit) continue;
            const double before = S[from + e];
            const T stored = shrunk<T>(before - t_S * d, gamma * t_S);
            const double after = stored, change = after - before;
            S_out[from + e] = stored;
            terms[1][e] = fabs(after), terms[2][e] = change * change;
            if (rule == manpg) rest[from + e] = (1.0 - l2) * d - l2 * y;
            room.number[e] = y - change, room.weight[e] = 1.0;
        }
        if (rule == amanpg) room.add(size, false);
        for (int k = 0; k < 3; ++k) room.count(k, terms[k], size);
    });
    double f_out = 0.0;
    if (rule == amanpg) {
        const double vb_new = room.solve(room.moments);
        f_out = share * (room.size2() - vb_new);
        __syncthreads();
        over([&](int64 from, int size) {
            for (int e = warp; e < size; e += warps) {
                const double y = double(values[from + e]) - double(S_out[from + e]), d = room.dot(e) - y;
                if (leads) rest[from + e] = (1.0 - l2) * d - l2 * y, terms[0][e] = d * d;
            }
            room.count(3, terms[0], size);
        });
    }
    for (int a = threadIdx.x; a < r; a += blockDim.x) V[line * r + a] = room.v[a];
    if (threadIdx.x == 0) {
        double moved = 0.0;
        for (int a = 0; V_before && a < r; ++a) {
            double difference = room.v[a];
            for (int b = 0; b < r; ++b) difference -= turn[a * r + b] * V_before[line * r + b];
            moved += difference * difference;
        }
        line_sums[line] = f_in + 0.5 * room.few[0];
        line_sums[n + line] = f_out + 0.5 * room.few[3];
        line_sums[2 * n + line] = room.few[1], line_sums[3 * n + line] = room.few[2], line_sums[4 * n + line] = moved;
    }
}

// The Gram matrix of the rows of U that a line sees (r x r), entry by entry.
template <class Float>
__global__ void __launch_bounds__(general_threads)
grams(int r, const int64* start, const int* index, const Float* U, Float* out) {
    const int64 line = blockIdx.x;
    for (int k = threadIdx.x; k < r * r; k += blockDim.x) {
        const int a = k / r, b = k % r;
        double sum = 0.0;
        for (int64 e = start[line]; e < start[line + 1]; ++e)
            sum = fma(U[int64(index[e]) * r + a], U[int64(index[e]) * r + b], sum);
        out[line * r * r + k] = sum;
    }
}

// Of each line the k-th largest |y|, byte by byte from the top: of numbers that are not negative the patterns ascend.
template <class Float>
__global__ void __launch_bounds__(general_threads)
kth_largest(const int64* start, const Float* y, const int64* wanted, Float* out) {
    __shared__ int counts[256];
    __shared__ unsigned long long prefix;
    __shared__ int64 left;
    const int64 line = blockIdx.x, first = start[line], count = start[line + 1] - first, k = wanted[line];
    if (k <= 0 || k > count) {
        if (threadIdx.x == 0) out[line] = k <= 0 ? __longlong_as_double(0x7ff0000000000000LL) : 0.0;
        return;
    }
    if (threadIdx.x == 0) prefix = 0, left = k;
    for (int shift = 56; shift >= 0; shift -= 8) {
        counts[threadIdx.x] = 0;
        __syncthreads();
        const unsigned long long known = prefix, mask = shift == 56 ? 0ULL : ~0ULL << (shift + 8);
        for (int64 e = threadIdx.x; e < count; e += blockDim.x) {
            const unsigned long long pattern = __double_as_longlong(fabs(y[first + e]));
            if ((pattern & mask) == known) atomicAdd(counts + int(pattern >> shift & 255), 1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int byte = 255;
            while (left > counts[byte]) left -= counts[byte--];
            prefix = known | (unsigned long long)(byte) << shift;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) out[line] = __longlong_as_double(prefix);
}
