// Medians of many stretches of an array, which may overlap. The NumPy version is lowsparse/series/runs.py.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace lowsparse {

// The median of x[begin..end), or of |x - about| if `about` has a number for each stretch. There is no NaN.
struct Medians {
    const double* x;
    const int64_t *begin, *end;
    const double* about;  // or null
    double* medians;

    void operator()(int64_t first, int64_t last) const {
        std::vector<double> some;
        for (int64_t k = first; k < last; ++k) {
            some.assign(x + begin[k], x + end[k]);
            if (about)
                for (double& number : some) number = std::fabs(number - about[k]);
            const auto upper = some.begin() + int64_t(some.size() / 2);
            std::nth_element(some.begin(), upper, some.end());
            medians[k] = some.size() % 2 ? *upper : (*std::max_element(some.begin(), upper) + *upper) / 2;
        }
    }
};

}  // namespace lowsparse
