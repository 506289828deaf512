// Which instruction sets this build has kernels for and this processor can run.
#pragma once
#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(LOWSPARSE_HAS_V3) && defined(_MSC_VER)
#define NOMINMAX
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#endif

namespace lowsparse {

inline bool cpu_has_v3() {
#if !defined(LOWSPARSE_HAS_V3)
    return false;
#elif defined(_MSC_VER)
    return IsProcessorFeaturePresent(PF_AVX2_INSTRUCTIONS_AVAILABLE);
#else
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
#endif
}

// The first processors with AVX-512 slow down when they use it; those that have its VBMI2 do not.
inline bool cpu_has_v4() {
#if !defined(LOWSPARSE_HAS_V4)
    return false;
#else
    return cpu_has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi2");
#endif
}

inline std::vector<std::string> instruction_sets() {
    std::vector<std::string> found{"baseline"};
    if (cpu_has_v3()) found.insert(found.begin(), "v3");
    if (cpu_has_v4()) found.insert(found.begin(), "v4");
    return found;
}

inline void check_instruction_set(const std::string& isa) {
    const auto found = instruction_sets();
    if (std::find(found.begin(), found.end(), isa) == found.end())
        throw std::invalid_argument("this build or this processor has no instruction set '" + isa + "'");
}

}  // namespace lowsparse
