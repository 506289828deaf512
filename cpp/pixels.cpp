// The kernels on pixels for one instruction set (LOWSPARSE_ISA, by compiler flags); plain loops, for the compiler to vectorise.
#include "pixels.hpp"

#include "lanes.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace lowsparse {
namespace LOWSPARSE_ISA {
namespace {

inline uint8_t rounded(float x) { return uint8_t(std::lrint(std::min(std::max(x, 0.0f), 255.0f))); }

// The background of some pixels of a channel; for rank 1 in one go.
void combine(const CompareArgs& args, int channel, int64_t begin, int64_t end, uint8_t* LS_RESTRICT out) {
    constexpr int64_t at_once = 256;
    const int64_t step = int64_t(args.channels) * args.n;
    float sums[at_once];
    for (; begin < end; begin += at_once, out += at_once) {
        const int64_t count = std::min(at_once, end - begin);
        const float* LS_RESTRICT plane = args.planes + channel * args.n + begin;
        for (int64_t k = 0; k < count; ++k) sums[k] = args.v[0] * plane[k];
        for (int r = 1; r < args.rank; ++r)
            for (int64_t k = 0; k < count; ++k) sums[k] += args.v[r] * plane[r * step + k];
        if (args.zero != 0)
            for (int64_t k = 0; k < count; ++k) sums[k] += args.zero;
        for (int64_t k = 0; k < count; ++k) out[k] = rounded(sums[k]);
    }
}

void compare(const CompareArgs& args) {
    constexpr int64_t at_once = 4096;  // stays in the cache
    for (int64_t begin = 0; begin < args.n; begin += at_once) {
        const int64_t count = std::min(at_once, args.n - begin);
        uint8_t* LS_RESTRICT beyond = args.beyond + begin;
        for (int channel = 0; channel < args.channels; ++channel) {
            const int64_t at = channel * args.n + begin;
            combine(args, channel, begin, begin + count, args.background + at);
            const uint8_t *LS_RESTRICT x = args.values + at, *LS_RESTRICT low = args.low + at, *LS_RESTRICT high = args.high + at,
                          *LS_RESTRICT background = args.background + at;
            const uint8_t keep = channel ? 3 : 0;
            for (int64_t k = 0; k < count; ++k) {
                const uint8_t a = x[k], b = background[k], far = uint8_t(std::max(a, b) - std::min(a, b));
                beyond[k] = uint8_t((beyond[k] & keep) | (far > low[k] ? 1 : 0) | (far > high[k] ? 2 : 0));
            }
        }
    }
}

void spread(const uint8_t* halves, int64_t H, int64_t W, uint8_t* bits) {
    const int64_t w = (W + 1) / 2;
    for (int64_t y = 0; y < H; ++y) {
        const uint8_t* LS_RESTRICT half = halves + y / 2 * w;
        uint8_t* LS_RESTRICT row = bits + y * W;
        for (int64_t x = 0; x < W / 2; ++x) {
            row[2 * x] |= half[x];
            row[2 * x + 1] |= half[x];
        }
        if (W % 2) row[W - 1] |= half[w - 1];
    }
}

void add_line(const uint8_t* LS_RESTRICT line, int64_t W, uint16_t sign, uint16_t* LS_RESTRICT sums) {
    for (int64_t x = 0; x < W; ++x) sums[x] = uint16_t(sums[x] + sign * (line[x] & 1));
}

void majority(const uint8_t* bits, int64_t H, int64_t W, int radius, uint8_t* LS_RESTRICT mask, uint16_t* memory) {
    const int64_t side = 2 * radius + 1;
    const uint16_t half = uint16_t(side * side / 2);
    uint16_t* LS_RESTRICT columns = memory + radius;
    uint16_t* LS_RESTRICT sums = memory + W + 2 * radius;
    const auto line = [&](int64_t y) { return bits + std::min(std::max<int64_t>(y, 0), H - 1) * W; };
    std::fill_n(columns, W, uint16_t(0));
    for (int64_t y = -radius; y <= radius; ++y) add_line(line(y), W, 1, columns);
    for (int64_t y = 0; y < H; ++y) {
        if (y) {
            add_line(line(y + radius), W, 1, columns);
            add_line(line(y - radius - 1), W, uint16_t(-1), columns);
        }
        for (int k = 1; k <= radius; ++k) {
            columns[-k] = columns[0];
            columns[W - 1 + k] = columns[W - 1];
        }
        std::fill_n(sums, W, uint16_t(0));
        for (int64_t k = -radius; k <= radius; ++k)
            for (int64_t x = 0; x < W; ++x) sums[x] = uint16_t(sums[x] + columns[x + k]);
        for (int64_t x = 0; x < W; ++x) mask[y * W + x] = sums[x] > half;
    }
}

// ---------------------------------------------------------------------- regression of blocks

constexpr int64_t most_values = 12;  // of a block: four of luma, floats of chroma in full resolution

struct BlockFit {
    const BlockFitArgs& args;
    floats *x, *v, *w, *sorted;                                         // samples x values, and three times samples
    floats b[most_values], noise[most_values], per_c[most_values];      // per_c: the inverse scales of the loss

    BlockFit(const BlockFitArgs& given, float* memory) : args(given) {
        x = reinterpret_cast<floats*>(memory);
        v = x + given.samples * given.values;
        w = v + given.samples;
        sorted = w + given.samples;
    }

    // The samples of `count` blocks; lanes beyond them repeat the last.
    void load(int64_t block, int64_t count, int64_t in_tile, int64_t tile) {
        for (int64_t k = 0; k < args.samples; ++k) {
            for (int l = 0; l < lanes; ++l) v[k][l] = args.v[k * tile + in_tile + std::min<int64_t>(l, count - 1)];
            for (int64_t i = 0; i < args.values; ++i) {
                const uint8_t* from = args.x[k] + i * args.blocks + block;
                uint8_t some[lanes];
                if (count == lanes)
                    std::memcpy(some, from, sizeof some);
                else
                    for (int l = 0; l < lanes; ++l) some[l] = from[std::min<int64_t>(l, count - 1)];
                float numbers[lanes];
                for (int l = 0; l < lanes; ++l) numbers[l] = float(some[l]);
                floats& to = x[k * args.values + i];
                std::memcpy(&to, numbers, sizeof to);
                if (i >= 4) to = to - all(args.neutral);
            }
        }
    }

    void set_scales(floats factor, bool by_noise) {
        for (int64_t i = 0; i < args.values; ++i) {
            const float level = args.level[i >= 4];
            for (int l = 0; l < lanes; ++l)
                per_c[i][l] = 1.0f / (factor[l] * (by_noise ? std::sqrt(std::max(noise[i][l], level) * level) : level));
        }
    }

    // How often residuals differ from the ones before them, from 0 to 1.
    floats restlessness() {
        floats sum = all(0.0f);
        const floats values = all(2.0f * float(args.values));
        for (int64_t k = 1; k < args.samples; ++k) {
            floats q = all(0.0f);
            for (int64_t i = 0; i < args.values; ++i) {
                const floats e = (x[k * args.values + i] - v[k] * b[i]) - (x[(k - 1) * args.values + i] - v[k - 1] * b[i]);
                q = q + (e * per_c[i]) * (e * per_c[i]);
            }
            sum = sum + (q * q) / (values * values + q * q);
        }
        return sum / all(float(std::max<int64_t>(args.samples - 1, 1)));
    }

    // b of the sample that agrees best with the others, or of the first that agrees with most.
    void find_typical() {
        for (int64_t k = 0; k < args.samples; ++k)
            w[k] = all(1.0f) / if_less(absolute(v[k]), all(args.dark), all(args.dark), v[k]);
        floats least = all(HUGE_VALF), open = all(1.0f), one[most_values];
        const floats values = all(float(args.values)), many = all(float(args.n_others));
        for (int64_t j = 0; j < args.n_candidates; ++j) {
            const int64_t k = args.candidates[j];
            for (int64_t i = 0; i < args.values; ++i) one[i] = x[k * args.values + i] * w[k];
            floats loss = all(0.0f);
            for (int64_t m = 0; m < args.n_others; ++m) {
                const floats* other = x + args.others[m] * args.values;
                const floats per_light = w[args.others[m]];
                floats q = all(0.0f);
                for (int64_t i = 0; i < args.values; ++i) {
                    const floats e = (other[i] * per_light - one[i]) * per_c[i];
                    q = q + e * e;
                }
                loss = loss + (q * q) / (values * values + q * q);
            }
            loss = loss / many;
            const floats bound = smaller(least, open * all(HUGE_VALF));  // 0 * infinity is no bound: nothing is less than it
            for (int64_t i = 0; i < args.values; ++i) b[i] = if_less(loss, bound, one[i], b[i]);
            least = if_less(loss, bound, loss, least);
            open = if_less(all(args.agrees), loss, open, all(0.0f));
            float still_open = 0.0f;
            for (int l = 0; l < lanes; ++l) still_open += open[l];
            if (still_open == 0.0f) return;
        }
    }

    // Reweighted least squares, from b on.
    void regress(int fits) {
        const floats per_value = all(1.0f / float(args.values)), unit = all(1.0f);
        for (int fit = 0; fit < fits; ++fit) {
            floats left = all(0.0f), right[most_values];
            for (int64_t i = 0; i < args.values; ++i) right[i] = all(0.0f);
            for (int64_t k = 0; k < args.samples; ++k) {
                const floats *sample = x + k * args.values, light = v[k];
                floats q = all(0.0f);
                for (int64_t i = 0; i < args.values; ++i) {
                    const floats e = (sample[i] - light * b[i]) * per_c[i];
                    q = q + e * e;
                }
                const floats inverse = unit + q * per_value;
                const floats weighted = light / (inverse * inverse);
                left = left + weighted * light;
                for (int64_t i = 0; i < args.values; ++i) right[i] = right[i] + weighted * sample[i];
            }
            left = larger(left, all(1e-12f));
            for (int64_t i = 0; i < args.values; ++i) b[i] = right[i] / left;
        }
    }

    // From a quantile of the residuals of each value.
    void estimate_noise() {
        const int64_t kept = args.middle + 1;  // of the smallest residuals, in order
        for (int64_t i = 0; i < args.values; ++i) {
            for (int64_t j = 0; j < kept; ++j) sorted[j] = all(HUGE_VALF);
            for (int64_t k = 0; k < args.samples; ++k) {
                floats far = absolute(x[k * args.values + i] - v[k] * b[i]);
                for (int64_t j = 0; j < std::min(k + 1, kept); ++j) {
                    const floats one = sorted[j];
                    sorted[j] = smaller(one, far);
                    far = larger(one, far);
                }
            }
            noise[i] = sorted[args.middle] / all(args.normal);
        }
    }
};

void fit_blocks(const BlockFitArgs& args, int64_t begin, int64_t end, float* memory) {
    BlockFit one(args, memory);
    for (int64_t block = begin; block < end; block += lanes) {
        const int64_t count = std::min(lanes, end - block);
        one.load(block, count, block - begin, end - begin);
        one.set_scales(all(args.wide * args.efficient), false);
        one.find_typical();
        one.regress(args.first_fits);
        one.estimate_noise();
        one.set_scales(all(args.efficient), false);
        const floats restless = (one.restlessness() - all(args.calm)) / all(args.restless - args.calm);
        one.set_scales(all(args.narrow) + all(args.broad - args.narrow) * smaller(larger(restless, all(0.0f)), all(1.0f)), true);
        one.regress(args.fits);
        one.estimate_noise();
        for (int64_t i = 0; i < args.values; ++i)
            for (int l = 0; l < count; ++l) {
                args.b[i * (end - begin) + block - begin + l] = one.b[i][l];
                args.noise[i * (end - begin) + block - begin + l] = one.noise[i][l];
            }
    }
}

// ---------------------------------------------------------------------- shifts of a picture

constexpr int64_t largest_patch = 2 * largest_reach + 3;

// The luma around a pixel, from top and left on; beyond the border of the picture the nearest.
const uint8_t* patch_at(const ShiftArgs& args, int64_t top, int64_t left, int64_t side, uint8_t* memory, int64_t& stride) {
    if (top >= 0 && left >= 0 && top + side <= args.H && left + side <= args.W) {
        stride = args.W;
        return args.luma + top * args.W + left;
    }
    stride = side;
    for (int64_t y = 0; y < side; ++y) {
        const uint8_t* line = args.luma + std::min(std::max<int64_t>(top + y, 0), args.H - 1) * args.W;
        for (int64_t x = 0; x < side; ++x) memory[y * side + x] = line[std::min(std::max<int64_t>(left + x, 0), args.W - 1)];
    }
    return memory;
}

void shift_sums(const ShiftArgs& args) {
    const int64_t size = 2 * args.reach + 1, side = size + 2;
    uint8_t memory[largest_patch * largest_patch];
    std::fill_n(args.sums, 2 * size * size, 0);
    for (int64_t k = 0; k < args.n; ++k) {
        int64_t stride;
        const uint8_t* patch = patch_at(args, args.rows[k] + args.y - args.reach - 1, args.columns[k] + args.x - args.reach - 1,
                                        side, memory, stride);
        const int32_t down = args.expected[2 * k], right = args.expected[2 * k + 1], unit = args.unit, bound = args.bound;
        int32_t* LS_RESTRICT sums = args.sums + k % 2 * size * size;
        for (int64_t y = 0; y < size; ++y, sums += size) {
            const uint8_t *LS_RESTRICT above = patch + y * stride, *LS_RESTRICT line = above + stride,
                          *LS_RESTRICT below = line + stride;
            for (int64_t x = 0; x < size; ++x) {
                const int32_t far = std::abs(unit * (below[x + 1] - above[x + 1]) - down) +
                                    std::abs(unit * (line[x + 2] - line[x]) - right);
                sums[x] += std::min(far, bound);
            }
        }
    }
}

}  // namespace

extern const PixelKernels pixel_kernels = {compare, spread, majority, fit_blocks, shift_sums};

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
