// Any rank: a block takes a line or a piece of one, and its normal equations are in shared memory. And what is asked of a
// line besides.
#pragma once
#include "losses.cuh"
#include "regress.cuh"
#include "sweep.cuh"

constexpr int side = 4;  // a thread sums up side x side numbers of a Gram matrix at a time

// Shared memory of a block, for a rank r known when it runs. A row of the panel is [u y 0...], `width` numbers: its products
// with itself are those of the Gram matrix and of the right-hand side. v has -1 behind it: row . v = u . v - y.
template <int threads>
struct GeneralRoom {
    int r, width, part, half;                                         // `part` rows fit, `half` is the size of a triangle
    double *panel, *v, *weight, *inverse, *gram, *moments, *few;  // gram: upper triangle, row by row; few: 3 numbers
    __device__ GeneralRoom(double2* memory, int r) : r(r), width(r / side * side + side), half(r * (r + 1) / 2) {
        part = min(threads, side * side * threads / width);
        panel = reinterpret_cast<double*>(memory), v = panel + side * side * threads, weight = v + width;
        inverse = weight + threads, gram = inverse + r, moments = gram + half, few = moments + r;
    }
    __device__ double* row(int a) const { return gram + a * r - a * (a + 1) / 2; }  // from its entry a on
    // v is there for all once they have waited for each other, as `over` does
    __device__ void set_v(const double* from) const {
        __syncthreads();
        for (int a = threadIdx.x; a < width; a += threads) v[a] = a < r ? (from ? from[a] : 0.0) : a == r ? -1.0 : 0.0;
    }

    // Rows of U with y = fill(k) into the panel, a warp 32 of them, eight threads a row.
    template <class Fill>
    __device__ void gather(const double* U, const int* index, int size, Fill fill) const {
        const int lane = threadIdx.x % 32;
        for (int first = threadIdx.x - lane; first < size; first += threads) {
            const int k = first + lane, seen = k < size ? index[k] : 0;
            const double y = k < size ? fill(k) : 0.0;
            for (int e = lane / 8; e < 32; e += 4) {
                const double* from = U + int64(__shfl_sync(0xffffffffu, seen, e)) * r;
                for (int a = lane % 8; a < r && first + e < size; a += 8)
                    copy_ahead<8>(panel + (first + e) * width + a, from + a);
            }
            for (int a = r; a < width && k < size; ++a) panel[k * width + a] = a == r ? y : 0.0;
        }
        await_copies();
    }
    // body(first, size) for the parts of a piece, while they are in the panel
    template <class Fill, class Body>
    __device__ void over(const double* U, const int* index, int count, Fill fill, Body body) const {
        for (int first = 0; first < count; first += part) {
            const int size = min(part, count - first);
            __syncthreads();
            gather(U, index + first, size, [&](int k) { return fill(first + k); });
            __syncthreads();
            body(first, size);
        }
        __syncthreads();
    }
    // body(e, y, u . v - y) for the entries e in the panel, by one of the four threads that have one
    template <class Body>
    __device__ void residuals(int size, Body body) const {
        const int lane = threadIdx.x % 32;
        for (int first = threadIdx.x / 32 * 8; first < size; first += threads / 4) {
            const int e = first + lane / 4;
            double* row = panel + min(e, size - 1) * width;
            double sum = 0.0;
            for (int a = lane % 4 * 2; a < width; a += 8) {
                const double2 u = *reinterpret_cast<const double2*>(row + a), w = *reinterpret_cast<const double2*>(v + a);
                sum = fma(u.x, w.x, fma(u.y, w.y, sum));
            }
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (lane % 4 == 0 && e < size) body(e, row[r], sum);
        }
    }
    // few = the sums of numbers over the block
    template <int N>
    __device__ void count(const double (&found)[N]) const {
        totals(Group<threads>(), found, panel, few);
    }

    // A = keep G + ridge I = RᵀDR in the place of G (D R), and 1 / D in `inverse`; v is lost
    __device__ void factor(double keep, double ridge) const {
        const int lane = threadIdx.x % 32;
        for (int a = threadIdx.x / 32; a < r; a += threads / 32)
            for (int b = a + lane; b < r; b += 32) {
                row(a)[b] = keep * row(a)[b] + (a == b ? ridge : 0.0);
                if (a == b) v[a] = pivot_tolerance * row(a)[a];
            }
        __syncthreads();
        for (int k = 0; k < r; ++k) {
            const double pivot = row(k)[k], over = pivot > v[k] ? 1.0 / pivot : 0.0;
            if (threadIdx.x == 0) inverse[k] = over;
            for (int j = k + 1 + threadIdx.x / 32; j < r; j += threads / 32) {
                const double l = row(k)[j] * over;
                for (int i = j + lane; i < r; i += 32) row(j)[i] -= l * row(k)[i];
            }
            __syncthreads();
        }
    }
    // v = A⁻¹ moments, by the first warp
    __device__ void solve() const {
        if (threadIdx.x < 32) {
            for (int a = threadIdx.x; a < r; a += 32) v[a] = moments[a];
            __syncwarp();
            for (int k = 0; k < r; ++k) {
                const double x = v[k] * inverse[k];
                for (int j = k + 1 + threadIdx.x; j < r; j += 32) v[j] -= row(k)[j] * x;
                __syncwarp();
            }
            for (int a = threadIdx.x; a < r; a += 32) v[a] *= inverse[a];
            __syncwarp();
            for (int k = r - 1; k > 0; --k) {
                const double x = v[k];
                for (int j = threadIdx.x; j < k; j += 32) v[j] -= inverse[j] * row(j)[k] * x;
                __syncwarp();
            }
        }
        __syncthreads();
    }
    // Σ v (v - b), in every thread
    __device__ double times_less(const double* b) const {
        double sum = 0.0;
        for (int a = threadIdx.x % 32; a < r; a += 32) sum = fma(v[a], v[a] - (b ? b[a] : 0.0), sum);
        for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
        return sum;
    }
};

// Σ w [u y]ᵀ [u y] over the rows that pass through the panel: a tile of side x side numbers in the registers of each thread.
// A team of threads has one tile each, all from `first` on or as many as there are threads; the teams share the rows.
// With `whole` the tiles are those of the upper triangle, else those of its last column, which has the products with y.
template <int threads>
struct Tiles {
    const GeneralRoom<threads>& room;
    bool whole;
    int many, teams, team, i, j;
    double sums[side][side];

    static __device__ int all(const GeneralRoom<threads>& room) {
        const int across = room.width / side;
        return across * (across + 1) / 2;
    }
    __device__ Tiles(const GeneralRoom<threads>& room, bool whole, int first = 0) : room(room), whole(whole) {
        const int across = room.width / side;
        many = whole ? min(all(room) - first, threads) : across;
        teams = threads / many, team = threadIdx.x / many;
        i = 0, j = first + threadIdx.x % many;
        if (whole)
            for (; j >= across; ++i) j -= across - i - 1;
        else
            i = j, j = across - 1;
#pragma unroll
        for (int a = 0; a < side; ++a)
#pragma unroll
            for (int b = 0; b < side; ++b) sums[a][b] = 0.0;
    }
    template <bool weighted>
    __device__ void add(int size) {
        for (int e = team < teams ? team : size; e < size; e += teams) {
            const double* row = room.panel + e * room.width;
            double u[side], w[side];
            load_row<side>(row + side * i, u);
            load_row<side>(row + side * j, w);
            if (weighted)
#pragma unroll
                for (int a = 0; a < side; ++a) u[a] *= room.weight[e];
#pragma unroll
            for (int a = 0; a < side; ++a)
#pragma unroll
                for (int b = 0; b < side; ++b) sums[a][b] = fma(u[a], w[b], sums[a][b]);
        }
    }
    // The sums of all teams, in their order, to where they belong.
    __device__ void finish() const {
#pragma unroll
        for (int q = 0; q < side * side; ++q) room.panel[q * threads + threadIdx.x] = sums[q / side][q % side];
        __syncthreads();
        for (int q = team < teams ? team : side * side; q < side * side; q += teams) {
            double sum = 0.0;
            for (int t = 0; t < teams; ++t) sum += room.panel[q * threads + t * many + threadIdx.x % many];
            const int a = side * i + q / side, b = side * j + q % side;
            if (b == room.r && a < room.r)
                room.moments[a] = sum;
            else if (whole && a <= b && b < room.r)
                room.row(a)[b] = sum;
        }
        __syncthreads();
    }
};

// V becomes the fit, as `regress` finds it.
template <class T, int threads, bool cut>
__global__ void __launch_bounds__(threads)
regress_general(int r, const int* lines, const int64* firsts, const int* bases, int many, int length, const int64* start,
                const int* index, const T* values, int64 others, const double* U, const double* V_in, double* V,
                int64* inside, int* counts, int sampling, int kind, double first_c, double ratio, double c, double p, int n_reweight,
                double shrink, double ridge, double largest, double bound, double per_unit, int first_pass, int last_pass,
                double* partial, int* tickets) {
    extern __shared__ double2 memory[];
    const GeneralRoom<threads> room(memory, r);
    const Group<threads> group;
    const Work work{lines, firsts, bases, many, length};
    const Piece piece = piece_of<cut>(work, start, group.number);
    const Regression options{Loss(kind, c, p), first_c, ratio, n_reweight, shrink, ridge, largest, bound, per_unit};
    const int64 line = piece.line;
    const T* x = values + piece.first;
    const double* guess = first_pass ? V : V_in;
    room.set_v(guess ? guess + line * r : nullptr);
    for (int pass = first_pass; pass < last_pass; ++pass) {
        const Loss loss(kind, options.width(pass), p);
        double found[2] = {0.0, 0.0};  // the weight, and options many are within the bound
        for (int first = 0; first < Tiles<threads>::all(room); first += threads) {
            Tiles<threads> tiles(room, true, first);
            room.over(U, index + piece.first, piece.count, [&](int k) { return double(x[k]); }, [&](int from, int size) {
                room.residuals(size, [&](int e, double, double rest) {
                    const double w = room.weight[e] = loss.weight(rest);
                    if (first) return;  // another part of the same sums
                    if (pass == 0 && ((piece.first + from + e) & sampling) == 0)
                        atomicAdd(counts + magnitude_bin(rest * options.per_unit), 1);
                    found[0] += w;
                    found[1] += fabs(rest) <= options.bound ? 1.0 : 0.0;
                });
                __syncthreads();
                tiles.template add<true>(size);
            });
            tiles.finish();
        }
        room.count(found);
        if constexpr (cut)
            if (!joined(group, piece, room.half + r + 2, room.gram, partial, tickets)) return;
        const double weight = room.few[0];
        room.factor(1.0, options.support(weight, start[line + 1] - start[line], r, others));
        room.solve();
        if (options.unbelievable(room.times_less(nullptr), weight, r)) room.set_v(nullptr);
    }
    for (int a = threadIdx.x; a < r; a += threads) V[line * r + a] = room.v[a];
    if (threadIdx.x == 0) inside[line] = int64(room.few[1]);
}

// The phases are those of `sweep`, which never has both v at hand here: `rest` is always written. `prior` is pass v'.
template <class T, int threads, bool cut>
__global__ void __launch_bounds__(threads)
sweep_general(int r, const int* lines, const int64* firsts, const int* bases, int many, int length, const int64* start,
              const int* index, const T* values, const double* U, const T* S, T* S_out, double* V, double* rest,
              const double* prior, double gamma, double t_S, double l2, int rule, double* line_sums, int64 n, int first_phase,
              int last_phase, double* partial, double* stored, int* tickets) {
    extern __shared__ double2 memory[];
    const GeneralRoom<threads> room(memory, r);
    const Group<threads> group;
    const Work work{lines, firsts, bases, many, length};
    const Piece piece = piece_of<cut>(work, start, group.number);
    const int64 line = piece.line;
    const T *x = values + piece.first, *s = S + piece.first;
    T* s_out = S_out ? S_out + piece.first : nullptr;
    const auto old_y = [&](int k) { return double(x[k]) - double(s[k]); };
    const auto new_y = [&](int k) { return double(x[k]) - double(s_out[k]); };
    const int* rows = index + piece.first;
    const double share = 0.5 * l2 / (1.0 - l2);  // see `regulariser`
    const int kept = r + room.half;
    double* factors = stored + int64(piece.base / 2) * kept;  // a line in pieces has two at least
    room.set_v(first_phase ? V + line * r : nullptr);

    if (first_phase == 0) {
        for (int first = 0; first < Tiles<threads>::all(room); first += threads) {
            Tiles<threads> tiles(room, true, first);
            room.over(U, rows, piece.count, old_y, [&](int, int size) { tiles.template add<false>(size); });
            tiles.finish();
        }
        if constexpr (cut)
            if (!joined(group, piece, room.half + r, room.gram, partial, tickets)) return;
        room.factor(1.0 - l2, l2);
        room.solve();
        const double f_in = share * room.times_less(room.moments);
        if (threadIdx.x == 0) line_sums[line] = f_in;
        if (cut) {
            for (int k = threadIdx.x; k < kept && rule == amanpg; k += threads) factors[k] = room.inverse[k];
            for (int a = threadIdx.x; a < r; a += threads) V[line * r + a] = room.v[a];
        }
    }

    if (first_phase <= 1 && last_phase >= 1) {
        double found[3] = {0.0, 0.0, 0.0};  // the misfit, ‖S+‖₁, ‖S+ - S‖²
        Tiles<threads> tiles(room, false);
        room.over(U, rows, piece.count, old_y, [&](int from, int size) {
            room.residuals(size, [&](int e, double y, double d) {
                found[0] += d * d;
                if (rule == fit) return;
                const double before = s[from + e];
                const T shrunken = shrunk<T>(before - t_S * d, gamma * t_S);
                const double after = shrunken, change = after - before;
                s_out[from + e] = shrunken;
                found[1] += fabs(after);
                found[2] += change * change;
                if (rule == manpg) rest[piece.first + from + e] = (1.0 - l2) * d - l2 * y;
                room.panel[e * room.width + r] = y - change;
            });
            if (rule != amanpg) return;
            __syncthreads();
            tiles.template add<false>(size);
        });
        if (rule == amanpg) tiles.finish();
        room.count(found);
        if constexpr (cut) {
            if (!joined(group, piece, r + 3, room.moments, partial, tickets)) return;
            for (int k = threadIdx.x; k < kept && rule == amanpg; k += threads) room.inverse[k] = factors[k];
            __syncthreads();
        }
        if (rule == amanpg) room.solve();
        const double f_out = rule == amanpg ? share * room.times_less(room.moments) : 0.0;
        for (int a = threadIdx.x; a < r; a += threads) V[line * r + a] = room.v[a];
        if (threadIdx.x == 0) {
            double moved = 0.0;
            for (int a = 0; prior && a < r; ++a) {
                const double difference = room.v[a] - prior[line * r + a];
                moved += difference * difference;
            }
            line_sums[line] += 0.5 * room.few[0];
            line_sums[n + line] = f_out;
            line_sums[2 * n + line] = room.few[1], line_sums[3 * n + line] = room.few[2], line_sums[4 * n + line] = moved;
        }
    }

    if (last_phase >= 2) {
        double found[1] = {0.0};
        room.over(U, rows, piece.count, new_y, [&](int from, int size) {
            room.residuals(size, [&](int e, double y, double d) {
                found[0] += d * d;
                rest[piece.first + from + e] = (1.0 - l2) * d - l2 * y;
            });
        });
        room.count(found);
        if constexpr (cut)
            if (!joined(group, piece, 1, room.few, partial, tickets)) return;
        if (threadIdx.x == 0) line_sums[n + line] += 0.5 * room.few[0];
    }
}

// The Gram matrix of the rows of U that a line sees (r x r).
template <int threads, bool cut>
__global__ void __launch_bounds__(threads)
grams(int r, const int* lines, const int64* firsts, const int* bases, int many, int length, const int64* start,
      const int* index, const double* U, double* out, double* partial, int* tickets) {
    extern __shared__ double2 memory[];
    const GeneralRoom<threads> room(memory, r);
    const Group<threads> group;
    const Work work{lines, firsts, bases, many, length};
    const Piece piece = piece_of<cut>(work, start, group.number);
    for (int first = 0; first < Tiles<threads>::all(room); first += threads) {
        Tiles<threads> tiles(room, true, first);
        room.over(U, index + piece.first, piece.count, [](int) { return 0.0; },
                  [&](int, int size) { tiles.template add<false>(size); });
        tiles.finish();
    }
    if constexpr (cut)
        if (!joined(group, piece, room.half, room.gram, partial, tickets)) return;
    for (int k = threadIdx.x; k < r * r; k += threads)
        out[int64(piece.line) * r * r + k] = room.row(min(k / r, k % r))[max(k / r, k % r)];
}

constexpr int general_threads = 256;

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
