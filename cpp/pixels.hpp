// Kernels on the pixels of a video: plain structs and one table of functions per instruction set, for lowsparse.video.
// Their NumPy oracles stand beside their users. No sum depends on the instruction set or on the number of threads.
#pragma once
#include <cstdint>

#if defined(_MSC_VER)
#define LS_RESTRICT __restrict
#else
#define LS_RESTRICT __restrict__
#endif

namespace lowsparse {

// The background sum_k v_k planes_k + zero of pixels, rounded to 0 to 255, and where the values differ from it.
struct CompareArgs {
    int64_t n;                            // pixels of a channel
    int rank, channels;
    const float* planes;                  // rank x channels x n
    const float* v;                       // rank
    float zero;
    const uint8_t *values, *low, *high;   // channels x n
    uint8_t* background;                  // channels x n
    uint8_t* beyond;                      // n: bit 0 if some channel differs by more than low, bit 1 by more than high
};

// What is left of a mask: its regions that are large, or have enough seeds and are not tiny, with their small holes filled.
struct Sizes {
    double large, tiny, hole;  // parts of the picture
    double seeds;              // part of a region
    int64_t fine;              // pixels beyond which regions are those of blocks of 2 x 2 pixels
};

// Robust regression of blocks of pixels on the brightness of frames (rank 1); lowsparse.video.pixel_regression explains.
struct BlockFitArgs {
    int64_t blocks, samples, values;
    const uint8_t* const* x;      // for each sample values x blocks
    const float* v;               // samples x (end - begin)
    const int32_t* candidates;    // samples that may be the typical one,
    const int32_t* others;        // and those they are compared with
    int64_t n_candidates, n_others;
    float level[2];               // noise of luma (four values) and of chroma (the others)
    float efficient, wide, agrees, dark, neutral;  // the last is the chroma of grey
    float narrow, broad, calm, restless;
    int first_fits, fits;         // reweighted regressions from the typical sample, and then
    int64_t middle;               // the residual of this order, from 0, says the noise,
    float normal;                 // divided by this
    float *b, *noise;             // values x (end - begin)
};

// How far the gradients of a picture are from those expected at some pixels, if it is shifted by (y, x); for each
// y and x of 2 reach + 1 around a shift. All numbers are integers: lowsparse.video.registration explains.
struct ShiftArgs {
    const uint8_t* luma;
    int64_t H, W, n;                // the picture, and how many pixels
    const int32_t *rows, *columns;  // n, inside the picture
    const int32_t* expected;        // n x 2: down and to the right, in `unit` parts of a level
    int32_t unit, bound;            // the bound of each sum of two differences, in such parts
    int64_t y, x;
    int reach;
    int32_t* sums;                  // 2 x (2 reach + 1) x (2 reach + 1): of every other pixel, and of the others
};

struct PixelKernels {
    void (*compare)(const CompareArgs&);
    // bits (H x W) |= halves, of which each is for 2 x 2 pixels
    void (*spread)(const uint8_t* halves, int64_t H, int64_t W, uint8_t* bits);
    // Whether most of the pixels within the radius have bit 0; `memory` has 2 (W + 2 radius) numbers.
    void (*majority)(const uint8_t* bits, int64_t H, int64_t W, int radius, uint8_t* mask, uint16_t* memory);
    void (*fit_blocks)(const BlockFitArgs&, int64_t begin, int64_t end, float* memory);
    void (*shift_sums)(const ShiftArgs&);
};

constexpr int largest_reach = 30;

// Floats of scratch memory, aligned to 32 bytes, for `fit_blocks`.
inline int64_t block_fit_memory(int64_t samples, int64_t values) { return 8 * samples * (values + 3); }

namespace baseline {
extern const PixelKernels pixel_kernels;
}
namespace v3 {
extern const PixelKernels pixel_kernels;
}

}  // namespace lowsparse
