// The kernels for one instruction set (LOWSPARSE_ISA, by compiler flags).
#include "kernels.hpp"

#include "dispatch.hpp"
#include "gaps.hpp"
#include "gradient.hpp"
#include "regress.hpp"
#include "rowwise.hpp"
#include "subsets.hpp"
#include "track.hpp"

namespace lowsparse {
namespace LOWSPARSE_ISA {
namespace {

void regress(const RegressArgs& args, int64_t begin, int64_t end, int64_t* counts, double* memory) {
    by_type(args.columns, [&](auto number) {
        by_rank<pack>(args.r, [&](auto* panel, auto rank) {
            using Panel = std::remove_pointer_t<decltype(panel)>;
            regress_columns<Panel, decltype(rank)::value, decltype(number)>(args, begin, end, counts, memory);
        });
    });
}

void entries(const EntriesArgs& args, int64_t begin, int64_t end) {
    by_type(args.columns, [&](auto number) { entries_columns<decltype(number)>(args, begin, end); });
}

void gram_product(const GramProductArgs& args, int64_t begin, int64_t end, double* Y) {
    by_type(args.columns, [&](auto number) { gram_product_columns<decltype(number)>(args, begin, end, Y); });
}

double gradient(const GradientArgs& args, int64_t begin, int64_t end, double* G) {
    return by_type(args.columns, [&](auto number) { return gradient_columns<decltype(number)>(args, begin, end, G); });
}

double curvature(const CurvatureArgs& args, int64_t begin, int64_t end) {
    return by_type(args.columns, [&](auto number) { return curvature_columns<decltype(number)>(args, begin, end); });
}

void ascend(const AscendArgs& args, int64_t begin, int64_t end, double* G, AscendSums& sums) {
    by_type(args.columns, [&](auto number) { ascend_columns<decltype(number)>(args, begin, end, G, sums); });
}

void subsets(const SubsetArgs& args, int64_t begin, int64_t end, double* memory) {
    by_type(args.columns, [&](auto number) { subset_columns<decltype(number)>(args, begin, end, memory); });
}

void track(const TrackArgs& args, const int64_t* order, int64_t count, TrackState& state, double* W, int64_t longest,
           double* memory) {
    by_type(args.columns, [&](auto number) {
        track_columns<decltype(number)>(args, order, count, state, W, longest, memory);
    });
}

template <class Word>
uint64_t bits_of(const Word* x, int64_t n) {
    uint64_t found = 0;
    for (int64_t k = 0; k < n; ++k) found |= uint64_t(x[k] != 0) << k;
    return found;
}

void nonzero_bits(const void* x, bool single, int64_t n, uint64_t* bits) {
    int64_t k = 0;
#if defined(__GNUC__)
    typedef uint64_t four __attribute__((vector_size(32)));
    if (!single)
        for (; k + 64 <= n; k += 64) {
            four found = {0, 0, 0, 0}, place = {1, 2, 4, 8}, numbers;
            LS_UNROLL
            for (int part = 0; part < 16; ++part, place <<= 4) {
                std::memcpy(&numbers, static_cast<const uint64_t*>(x) + k + 4 * part, sizeof numbers);
                found |= place & ~four(numbers == four{0, 0, 0, 0});
            }
            bits[k / 64] = found[0] | found[1] | found[2] | found[3];
        }
#endif
    for (; k < n; k += 64) {
        const int64_t many = n - k < 64 ? n - k : 64;
        bits[k / 64] = single ? bits_of(static_cast<const uint32_t*>(x) + k, many)
                              : bits_of(static_cast<const uint64_t*>(x) + k, many);
    }
}

#define LS_TEXT_(x) #x
#define LS_TEXT(x) LS_TEXT_(x)

}  // namespace

extern const Kernels kernels = {LS_TEXT(LOWSPARSE_ISA),
                                padded_rank,
                                row_length,
                                sweep_memory,
                                sweep<pack>,
                                gram_product,
                                regress_memory,
                                regress,
                                entries,
                                product_columns,
                                product_transposed_columns,
                                gradient,
                                curvature,
                                ascend,
                                grams_columns,
                                subset_memory,
                                subsets,
                                track,
                                condition,
                                bridge,
                                weigh,
                                nonzero_bits,
                                finish_gradient};

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
