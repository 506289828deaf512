// Memory to write to.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

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
        double* first = reinterpret_cast<double*>((reinterpret_cast<uintptr_t>(memory_.get()) + 63) / 64 * 64);
#if defined(__SANITIZE_ADDRESS__)  // what was not asked for is not to be touched
        __asan_poison_memory_region(memory_.get(), sizeof(double) * (size_ + 8));
        __asan_unpoison_memory_region(first, sizeof(double) * doubles);
#endif
        return first;
    }
};

}  // namespace lowsparse
