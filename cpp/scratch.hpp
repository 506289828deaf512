// Memory to write to.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace lowsparse {

// Memory that starts on a cache line, kept between calls and grown when needed.
class Scratch {
    std::unique_ptr<double[]> memory_;
    size_t size_ = 0;

  public:
    double* at_least(size_t doubles) {
        if (doubles > size_) {
            memory_.reset();
            memory_.reset(new double[doubles + 8]);
            size_ = doubles;
        }
        return reinterpret_cast<double*>((reinterpret_cast<uintptr_t>(memory_.get()) + 63) / 64 * 64);
    }
};

}  // namespace lowsparse
