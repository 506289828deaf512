// The kernels for one instruction set (LOWSPARSE_ISA, by compiler flags): one instance per rank up to 16, one above.
#include "kernels.hpp"

#include "gradient.hpp"
#include "gram_product.hpp"
#include "regress.hpp"
#include "sweep.hpp"

namespace lowsparse {
namespace LOWSPARSE_ISA {
namespace {

constexpr int largest_small = 16;

template <class T, int R = 1>
void sweep_of(const SweepArgs& args, int64_t begin, int64_t end, double* G, double* VVt, SweepSums& sums, double* memory) {
    if constexpr (R > largest_small) {
        sweep_columns<LargePanel, 0, T>(args, begin, end, G, VVt, sums, memory);
    } else {
        if (args.r == R)
            sweep_columns<SmallPanel<R>, R, T>(args, begin, end, G, VVt, sums, memory);
        else
            sweep_of<T, R + 1>(args, begin, end, G, VVt, sums, memory);
    }
}

void sweep(const SweepArgs& args, int64_t begin, int64_t end, double* G, double* VVt, SweepSums& sums, double* memory) {
    if (args.columns.single)
        sweep_of<float>(args, begin, end, G, VVt, sums, memory);
    else
        sweep_of<double>(args, begin, end, G, VVt, sums, memory);
}

template <class T, int R = 1>
void regress_of(const RegressArgs& args, int64_t begin, int64_t end, int64_t* counts, double* memory) {
    if constexpr (R > largest_small) {
        regress_columns<LargePanel, 0, T>(args, begin, end, counts, memory);
    } else {
        if (args.r == R)
            regress_columns<SmallPanel<R>, R, T>(args, begin, end, counts, memory);
        else
            regress_of<T, R + 1>(args, begin, end, counts, memory);
    }
}

void regress(const RegressArgs& args, int64_t begin, int64_t end, int64_t* counts, double* memory) {
    if (args.columns.single)
        regress_of<float>(args, begin, end, counts, memory);
    else
        regress_of<double>(args, begin, end, counts, memory);
}

void residual(const ResidualArgs& args, int64_t begin, int64_t end) {
    if (args.columns.single)
        residual_columns<float>(args, begin, end);
    else
        residual_columns<double>(args, begin, end);
}

void gram_product(const GramProductArgs& args, int64_t begin, int64_t end, double* Y) {
    if (args.columns.single)
        gram_product_columns<float>(args, begin, end, Y);
    else
        gram_product_columns<double>(args, begin, end, Y);
}

#define LS_TEXT_(x) #x
#define LS_TEXT(x) LS_TEXT_(x)

}  // namespace

extern const Kernels kernels = {LS_TEXT(LOWSPARSE_ISA), padded_rank, row_length, sweep_memory, sweep, gram_product,
                                regress_memory, regress, residual, finish_gradient};

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
