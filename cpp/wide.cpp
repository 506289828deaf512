// The sweep for AVX-512, which takes eight entries of a column at a time. The other kernels are those of v3.
#include "wide.hpp"

#include "dispatch.hpp"

namespace lowsparse {
namespace v4 {

void wide_sweep(const SweepArgs& args, int64_t begin, int64_t end, double* G, double* VVt, SweepSums& sums,
                double* memory) {
    sweep<wide>(args, begin, end, G, VVt, sums, memory);
}

}  // namespace v4
}  // namespace lowsparse
