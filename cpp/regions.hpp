// Regions of a mask, by runs of pixels in its rows; what is left of a mask of what is in front.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "pixels.hpp"

namespace lowsparse {

// A part of a picture of bytes 0 and 1, of lines `stride` apart.
struct Box {
    int64_t top, left, height, width;
};

// The regions of the pixels of a box that equal `value`; with `corners`, pixels that touch at a corner are of one region.
class Regions {
    struct Run {
        int64_t row, begin, end;
    };
    std::vector<Run> runs_;
    std::vector<int64_t> parent_;
    std::vector<double> area_, weight_;

    int64_t root(int64_t k) {
        while (parent_[size_t(k)] != k) k = parent_[size_t(k)] = parent_[size_t(parent_[size_t(k)])];
        return k;
    }
    void join(int64_t a, int64_t b) {
        a = root(a), b = root(b);
        parent_[size_t(std::max(a, b))] = std::min(a, b);
    }

  public:
    Regions(const uint8_t* picture, int64_t stride, Box box, uint8_t value, bool corners) {
        const int64_t reach = corners ? 1 : 0;
        int64_t above = 0, above_end = 0;  // runs of the row before
        for (int64_t y = 0; y < box.height; ++y) {
            const uint8_t *line = picture + (box.top + y) * stride + box.left, *last = line + box.width;
            const int64_t first = int64_t(runs_.size());
            for (const uint8_t* at = line; at < last;) {
                at = static_cast<const uint8_t*>(std::memchr(at, value, size_t(last - at)));
                if (at == nullptr) break;
                const auto* stop = static_cast<const uint8_t*>(std::memchr(at, 1 - value, size_t(last - at)));
                if (stop == nullptr) stop = last;
                runs_.push_back({y, at - line, stop - line});
                at = stop;
            }
            parent_.resize(runs_.size());
            std::iota(parent_.begin() + first, parent_.end(), first);
            for (int64_t k = first; k < int64_t(runs_.size()); ++k) {
                const Run& run = runs_[size_t(k)];
                while (above < above_end && runs_[size_t(above)].end + reach <= run.begin) ++above;
                for (int64_t j = above; j < above_end && runs_[size_t(j)].begin < run.end + reach; ++j) join(j, k);
            }
            above = first;
            above_end = int64_t(runs_.size());
        }
        area_.assign(runs_.size(), 0.0);
        weight_.assign(runs_.size(), 0.0);
        for (int64_t k = 0; k < int64_t(runs_.size()); ++k)
            area_[size_t(root(k))] += double(runs_[size_t(k)].end - runs_[size_t(k)].begin);
    }

    // The weight of a region is the sum of `weight_of(row, begin, end)` over its runs.
    template <class Weight>
    void weigh(Weight weight_of) {
        for (int64_t k = 0; k < int64_t(runs_.size()); ++k) {
            const Run& run = runs_[size_t(k)];
            weight_[size_t(root(k))] += double(weight_of(run.row, run.begin, run.end));
        }
    }

    // write(row, begin, end) for the runs of the regions of which `chosen(area, weight)` holds
    template <class Test, class Write>
    void write(Test chosen, Write write) {
        for (int64_t k = 0; k < int64_t(runs_.size()); ++k) {
            const size_t region = size_t(root(k));
            if (chosen(area_[region], weight_[region])) write(runs_[size_t(k)].row, runs_[size_t(k)].begin, runs_[size_t(k)].end);
        }
    }
};

// The rows and columns of a mask with anything in it, and one more on each side if there is one; no height if nothing is.
inline Box bounding_box(const uint8_t* mask, int64_t H, int64_t W) {
    int64_t top = H, bottom = -1, left = W, right = -1;
    for (int64_t y = 0; y < H; ++y) {
        const uint8_t* line = mask + y * W;
        const auto* first = static_cast<const uint8_t*>(std::memchr(line, 1, size_t(W)));
        if (first == nullptr) continue;
        top = std::min(top, y);
        bottom = y;
        left = std::min<int64_t>(left, first - line);
        int64_t last = W - 1;
        while (last > right && !line[last]) --last;
        right = std::max(right, last);
    }
    if (bottom < 0) return {0, 0, 0, 0};
    top = std::max<int64_t>(top - 1, 0), left = std::max<int64_t>(left - 1, 0);
    return {top, left, std::min(bottom + 2, H) - top, std::min(right + 2, W) - left};
}

// The regions of a mask (H x W) that are large, or have enough seeds and are not tiny, in `kept`, and their small holes in
// `holes`; both are zero before.
inline void keep_regions(const uint8_t* mask, const uint8_t* seeds, int64_t H, int64_t W, const Sizes& sizes, bool corners,
                         uint8_t* kept, uint8_t* holes) {
    const Box box = bounding_box(mask, H, W);
    if (box.height == 0) return;
    const double size = double(H) * double(W);
    const auto offset = [&](int64_t row) { return (box.top + row) * W + box.left; };
    const auto fill = [&](uint8_t* picture) {
        return [=](int64_t row, int64_t begin, int64_t end) { std::memset(picture + offset(row) + begin, 1, size_t(end - begin)); };
    };
    Regions regions(mask, W, box, 1, corners);
    regions.weigh([&](int64_t row, int64_t begin, int64_t end) {
        return std::accumulate(seeds + offset(row) + begin, seeds + offset(row) + end, int64_t(0));
    });
    const auto is_kept = [&](double area, double seeds_in_it) {
        return area >= size / sizes.tiny && (seeds_in_it * sizes.seeds > area || area >= size / sizes.large);
    };
    regions.write(is_kept, fill(kept));
    Regions gaps(kept, W, box, 0, false);
    const bool cut_top = box.top > 0, cut_left = box.left > 0, cut_bottom = box.top + box.height < H,
               cut_right = box.left + box.width < W;
    gaps.weigh([&](int64_t row, int64_t begin, int64_t end) {  // those that go on beyond the box
        return (cut_top && row == 0) || (cut_bottom && row == box.height - 1) || (cut_left && begin == 0) ||
               (cut_right && end == box.width);
    });
    gaps.write([&](double area, double open) { return open == 0.0 && area < size / sizes.hole; }, fill(holes));
}

// Bytes of memory that `coherent` needs.
inline int64_t coherent_memory(int64_t H, int64_t W) { return 4 * H * W; }

// What is left of a mask, in place; bit 1 of `bits` is that of the seeds. `memory` has `coherent_memory` bytes.
inline void coherent(uint8_t* mask, const uint8_t* bits, int64_t H, int64_t W, const Sizes& sizes, uint8_t* memory) {
    const bool coarse = H * W > sizes.fine;
    const int64_t h = coarse ? (H + 1) / 2 : H, w = coarse ? (W + 1) / 2 : W;
    uint8_t *blocks = memory, *seeds = blocks + h * w, *kept = seeds + h * w, *holes = kept + h * w;
    std::memset(kept, 0, size_t(2 * h * w));
    if (!coarse) {
        for (int64_t k = 0; k < H * W; ++k) seeds[k] = uint8_t(mask[k] & (bits[k] >> 1));
        keep_regions(mask, seeds, H, W, sizes, true, kept, holes);
        for (int64_t k = 0; k < H * W; ++k) mask[k] = uint8_t(kept[k] | holes[k]);
        return;
    }
    for (int64_t y = 0; y < h; ++y) {
        const int64_t upper = 2 * y * W, lower = std::min(2 * y + 1, H - 1) * W;
        uint8_t *LS_RESTRICT block = blocks + y * w, *LS_RESTRICT seed = seeds + y * w;
        const uint8_t *LS_RESTRICT one = mask + upper, *LS_RESTRICT other = mask + lower;
        const uint8_t *LS_RESTRICT one_bits = bits + upper, *LS_RESTRICT other_bits = bits + lower;
        for (int64_t x = 0; x < w; ++x) {
            const int64_t left = 2 * x, right = x < W / 2 ? left + 1 : left;
            const uint8_t a = one[left], b = one[right], c = other[left], d = other[right];
            block[x] = uint8_t(a | b | c | d);
            seed[x] = uint8_t(((a & (one_bits[left] >> 1)) | (b & (one_bits[right] >> 1)) |
                               (c & (other_bits[left] >> 1)) | (d & (other_bits[right] >> 1))) & 1);
        }
    }
    keep_regions(blocks, seeds, h, w, sizes, false, kept, holes);
    for (int64_t y = 0; y < h; ++y) {  // blocks at the edge of a hole are in the mask in part: they are filled as well
        const uint8_t *line = holes + y * w, *before = y ? line - w : line, *after = y + 1 < h ? line + w : line;
        uint8_t *LS_RESTRICT high = seeds + y * w, *LS_RESTRICT filled = blocks + y * w;
        for (int64_t x = 0; x < w; ++x) high[x] = uint8_t(line[x] | before[x] | after[x]);
        for (int64_t x = 0; x < w; ++x) filled[x] = uint8_t(high[x] | high[std::max<int64_t>(x - 1, 0)] | high[std::min(x + 1, w - 1)]);
    }
    for (int64_t y = 0; y < H; ++y) {
        const uint8_t *LS_RESTRICT filled = blocks + y / 2 * w, *LS_RESTRICT stays = kept + y / 2 * w;
        uint8_t* LS_RESTRICT line = mask + y * W;
        for (int64_t x = 0; x < W / 2; ++x) {
            line[2 * x] = uint8_t((line[2 * x] & stays[x]) | filled[x]);
            line[2 * x + 1] = uint8_t((line[2 * x + 1] & stays[x]) | filled[x]);
        }
        if (W % 2) line[W - 1] = uint8_t((line[W - 1] & stays[w - 1]) | filled[w - 1]);
    }
}

}  // namespace lowsparse
