// The Python face of the kernels on the pixels of a video.
#include "video.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>
#include <memory>
#include <optional>

#include "instruction_sets.hpp"
#include "interpreter.hpp"
#include "pixels.hpp"
#include "regions.hpp"

namespace nb = nanobind;
using namespace lowsparse;

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>;
using BytesOut = nb::ndarray<uint8_t, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using FloatsOut = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
using Indices = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const int32_t, nb::c_contig, nb::device::cpu>;
using NumbersOut = nb::ndarray<int32_t, nb::c_contig, nb::device::cpu>;

const PixelKernels& pixel_kernels_for(const std::string& isa) {
    check_instruction_set(isa);
#if defined(LOWSPARSE_HAS_V3)
    if (isa != "baseline") return v3::pixel_kernels;
#endif
    return baseline::pixel_kernels;
}

void require(bool fits) {
    if (!fits) throw std::invalid_argument("the arrays do not fit together");
}

// Where a frame differs from its background: a bit for each pixel beyond the low bounds, and one beyond the high ones.
void compare(Floats planes, Floats v, float zero, Bytes values, Bytes low, Bytes high, BytesOut background, BytesOut beyond,
             const std::string& isa) {
    const int64_t n = int64_t(beyond.size()), rank = int64_t(v.size());
    require(rank > 0 && n > 0 && values.size() % size_t(n) == 0);
    const int64_t channels = int64_t(values.size()) / n;
    require(channels > 0 && low.size() == values.size() && high.size() == values.size() && background.size() == values.size() &&
            planes.size() == values.size() * size_t(rank));
    const CompareArgs args{n,          int(rank), int(channels), planes.data(),     v.data(),     zero, values.data(),
                           low.data(), high.data(), background.data(), beyond.data()};
    const PixelKernels& kernels = pixel_kernels_for(isa);
    const Interpreter::Without unlocked;
    kernels.compare(args);
}

// The mask of what is in front from the bits of luma, to which those of chroma are added first.
void mask_of_bits(BytesOut bits, std::optional<Bytes> chroma, int radius, double large, double tiny, double hole,
                  double seeds, int64_t fine, BytesOut mask, const std::string& isa) {
    require(bits.ndim() == 2 && mask.ndim() == 2 && mask.shape(0) == bits.shape(0) && mask.shape(1) == bits.shape(1));
    const int64_t H = int64_t(bits.shape(0)), W = int64_t(bits.shape(1));
    require(H > 0 && W > 0 && radius > 0 && radius < 128 && large > 0 && tiny > 0 && hole > 0 && seeds > 0);
    const bool halved = chroma && chroma->size() != bits.size();
    require(!halved || int64_t(chroma->size()) == ((H + 1) / 2) * ((W + 1) / 2));
    const PixelKernels& kernels = pixel_kernels_for(isa);
    const std::unique_ptr<uint16_t[]> lines(new uint16_t[size_t(2 * (W + 2 * radius))]);
    const std::unique_ptr<uint8_t[]> memory(new uint8_t[size_t(coherent_memory(H, W))]);
    const Interpreter::Without unlocked;
    if (halved)
        kernels.spread(chroma->data(), H, W, bits.data());
    else if (chroma)
        for (size_t k = 0; k < bits.size(); ++k) bits.data()[k] |= chroma->data()[k];
    kernels.majority(bits.data(), H, W, radius, mask.data(), lines.get());
    coherent(mask.data(), bits.data(), H, W, {large, tiny, hole, seeds, fine}, memory.get());
}

// The robust regression of the blocks from `begin` on, as many as v has columns.
void fit_blocks(const std::vector<Bytes>& x, Floats v, int64_t begin, Indices candidates, Indices others, float luma_level,
                float chroma_level, const std::vector<float>& constants, int first_fits, int fits, int64_t middle, float normal,
                FloatsOut b, FloatsOut noise, const std::string& isa) {
    const int64_t samples = int64_t(x.size());
    require(samples > 0 && b.ndim() == 2 && noise.size() == b.size() && v.ndim() == 2 && int64_t(v.shape(0)) == samples);
    require(constants.size() == 9 && middle >= 0 && middle < samples && normal > 0 && luma_level > 0 && chroma_level > 0);
    const int64_t values = int64_t(b.shape(0)), count = int64_t(v.shape(1));
    require(values > 0 && values <= 12 && count > 0 && int64_t(b.shape(1)) == count);
    const int64_t blocks = int64_t(x[0].size()) / values;
    require(begin >= 0 && begin + count <= blocks);
    std::vector<const uint8_t*> pointers;
    for (const Bytes& one : x) {
        require(int64_t(one.size()) == values * blocks);
        pointers.push_back(one.data());
    }
    for (const Indices* some : {&candidates, &others}) {
        require(some->size() > 0);
        for (size_t k = 0; k < some->size(); ++k) require(some->data()[k] >= 0 && some->data()[k] < samples);
    }
    const BlockFitArgs args{blocks, samples, values, pointers.data(), v.data(), candidates.data(), others.data(),
                            int64_t(candidates.size()), int64_t(others.size()), {luma_level, chroma_level}, constants[0],
                            constants[1], constants[2], constants[3], constants[4], constants[5], constants[6], constants[7],
                            constants[8], first_fits, fits, middle, normal, b.data(), noise.data()};
    const PixelKernels& kernels = pixel_kernels_for(isa);
    std::vector<float> memory(size_t(block_fit_memory(samples, values)) + 8);
    float* aligned = memory.data() + (32 - reinterpret_cast<uintptr_t>(memory.data()) % 32) % 32 / sizeof(float);
    const Interpreter::Without unlocked;
    kernels.fit_blocks(args, begin, begin + count, aligned);
}

// How far the gradients at some pixels are from those expected, for shifts of the picture around one.
void shift_sums(Bytes luma, Indices rows, Indices columns, Numbers expected, int32_t unit, int32_t bound, int64_t y, int64_t x,
                NumbersOut sums, const std::string& isa) {
    constexpr int64_t most = int64_t(1) << 24;  // of shifts, of units and of bounds
    require(luma.ndim() == 2 && luma.size() > 0 && sums.ndim() == 3 && sums.shape(0) == 2 && sums.shape(1) == sums.shape(2));
    require(sums.shape(1) % 2 == 1 && sums.shape(1) <= 2 * largest_reach + 1);
    require(-most < y && y < most && -most < x && x < most);  // the least number has no absolute value
    const int64_t H = int64_t(luma.shape(0)), W = int64_t(luma.shape(1)), n = int64_t(rows.size());
    require(int64_t(columns.size()) == n && int64_t(expected.size()) == 2 * n);
    require(unit > 0 && unit <= 1024 && bound >= 0 && bound < most && n * bound < (int64_t(1) << 31));
    for (int64_t k = 0; k < n; ++k) {
        require(rows.data()[k] >= 0 && rows.data()[k] < H && columns.data()[k] >= 0 && columns.data()[k] < W);
        require(std::abs(int64_t(expected.data()[2 * k])) < most && std::abs(int64_t(expected.data()[2 * k + 1])) < most);
    }
    const ShiftArgs args{luma.data(), H, W, n, rows.data(), columns.data(), expected.data(), unit, bound, y, x,
                         int(sums.shape(1) / 2), sums.data()};
    const PixelKernels& kernels = pixel_kernels_for(isa);
    const Interpreter::Without unlocked;
    kernels.shift_sums(args);
}

}  // namespace

void bind_video(nb::module_& module) {
    module.def("compare_pixels", &compare, nb::arg("planes"), nb::arg("v"), nb::arg("zero"), nb::arg("values"), nb::arg("low"),
               nb::arg("high"), nb::arg("background").noconvert(), nb::arg("beyond").noconvert(), nb::arg("isa"),
               "A background and where a frame differs from it; lowsparse.video.foreground is its user.");
    module.def("mask_of_bits", &mask_of_bits, nb::arg("bits").noconvert(), nb::arg("chroma").none(), nb::arg("radius"),
               nb::arg("large"), nb::arg("tiny"), nb::arg("hole"), nb::arg("seeds"), nb::arg("fine"), nb::arg("mask").noconvert(),
               nb::arg("isa"),
               "Majorities and regions of what differs; lowsparse.video.foreground is its user.");
    module.def("fit_blocks", &fit_blocks, nb::arg("x"), nb::arg("v"), nb::arg("begin"), nb::arg("candidates"), nb::arg("others"),
               nb::arg("luma_level"), nb::arg("chroma_level"), nb::arg("constants"), nb::arg("first_fits"), nb::arg("fits"),
               nb::arg("middle"), nb::arg("normal"), nb::arg("b").noconvert(), nb::arg("noise").noconvert(), nb::arg("isa"),
               "Robust regression of blocks of pixels; lowsparse.video.pixel_regression is its user.");
    module.def("shift_sums", &shift_sums, nb::arg("luma"), nb::arg("rows"), nb::arg("columns"), nb::arg("expected"),
               nb::arg("unit"), nb::arg("bound"), nb::arg("y"), nb::arg("x"), nb::arg("sums").noconvert(), nb::arg("isa"),
               "How far a shifted picture is from expected gradients; lowsparse.video.registration is its user.");
}
