// From the rank and the type of the entries to the instance of a kernel: one per small rank, one above.
#pragma once
#include "kernels.hpp"
#include "panel.hpp"
#include "sweep.hpp"

#include <type_traits>

namespace lowsparse {
namespace LOWSPARSE_ISA {

#if defined(LOWSPARSE_LARGEST_SMALL)
constexpr int largest_small = LOWSPARSE_LARGEST_SMALL;
#else
constexpr int largest_small = 16;
#endif

// body(a number of the type of the entries)
template <class Body>
auto by_type(const Columns& columns, Body body) {
    return columns.single ? body(float()) : body(double());
}

// body(panel, rank)
template <class Pack, int R = 1, class Body>
void by_rank(int r, Body body) {
    if constexpr (R > largest_small) {
        body(static_cast<LargePanel*>(nullptr), std::integral_constant<int, 0>{});
    } else {
        if (r == R)
            body(static_cast<SmallPanel<R, Pack>*>(nullptr), std::integral_constant<int, R>{});
        else
            by_rank<Pack, R + 1>(r, body);
    }
}

template <class Pack>
void sweep(const SweepArgs& args, int64_t begin, int64_t end, double* G, double* VVt, SweepSums& sums, double* memory) {
    by_type(args.columns, [&](auto number) {
        by_rank<Pack>(args.r, [&](auto* panel, auto rank) {
            using Panel = std::remove_pointer_t<decltype(panel)>;
            sweep_columns<Panel, decltype(rank)::value, decltype(number)>(args, begin, end, G, VVt, sums, memory);
        });
    });
}

}  // namespace LOWSPARSE_ISA
}  // namespace lowsparse
