// Numbers most of which are zero: a bit for each, and those that are not.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "parallel.hpp"

#if defined(_MSC_VER)
#include <intrin.h>
#endif

namespace lowsparse {

constexpr int64_t nonzeros_at_once = 1 << 16;  // numbers, a multiple of 64

inline int lowest_bit(uint64_t bits) {
#if defined(_MSC_VER)
    unsigned long place;
    _BitScanForward64(&place, bits);
    return int(place);
#else
    return __builtin_ctzll(bits);
#endif
}

inline int64_t count_bits(uint64_t bits) {
    bits -= (bits >> 1) & 0x5555555555555555u;  // of each two bits, then of each four, of each eight, of all
    bits = (bits & 0x3333333333333333u) + ((bits >> 2) & 0x3333333333333333u);
    bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return int64_t((bits * 0x0101010101010101u) >> 56);
}

// The words of bits for n numbers, in chunks that are shared out: what a chunk has before it is added up in between.
struct Chunks {
    int64_t n;
    std::vector<int64_t> before;

    explicit Chunks(int64_t numbers)
        : n(numbers), before(size_t(std::max<int64_t>(1, (n + nonzeros_at_once - 1) / nonzeros_at_once)) + 1, 0) {}
    int64_t count() const { return int64_t(before.size()) - 1; }
    int64_t total() const { return before.back(); }
    int64_t begin(int64_t chunk) const { return chunk * (nonzeros_at_once / 64); }
    int64_t end(int64_t chunk) const { return std::min((n + 63) / 64, begin(chunk + 1)); }
    int64_t length(int64_t word) const { return std::min<int64_t>(64, n - 64 * word); }
    void add_up() {
        for (size_t chunk = 1; chunk < before.size(); ++chunk) before[chunk] += before[chunk - 1];
    }
};

// Fills found with what is not zero, as the bits say, unless there is more than `most`; gives back how much there is.
// look(first number, count, where its bits go) fills the bits.
template <class Word, class Look>
int64_t squeeze(const Word* x, int64_t n, uint64_t* bits, Word* found, int64_t most, Look look, int threads, Stop& stop) {
    Chunks chunks(n);
    const auto count = [&](int, int64_t chunk) {
        const int64_t first = chunks.begin(chunk), last = chunks.end(chunk);
        look(x + 64 * first, std::min(n, 64 * last) - 64 * first, bits + first);
        for (int64_t word = first; word < last; ++word) chunks.before[size_t(chunk) + 1] += count_bits(bits[word]);
    };
    const auto take = [&](int, int64_t chunk) {
        if (chunks.total() > most) return;
        Word* next = found + chunks.before[size_t(chunk)];
        for (int64_t word = chunks.begin(chunk); word < chunks.end(chunk); ++word)
            for (uint64_t left = bits[word]; left; left &= left - 1) *next++ = x[64 * word + lowest_bit(left)];
    };
    run_phases({{chunks.count(), count, [&] { chunks.add_up(); }}, {chunks.count(), take}}, threads, stop);
    return chunks.total();
}

// The numbers again, as unsigned integers of their length; false if there are not as many as the bits say.
template <class Word>
bool expand(const uint64_t* bits, const Word* found, int64_t many, int64_t n, Word* x, int threads, Stop& stop) {
    Chunks chunks(n);
    const auto look = [&](int, int64_t chunk) {
        for (int64_t word = chunks.begin(chunk); word < chunks.end(chunk); ++word)
            chunks.before[size_t(chunk) + 1] += count_bits(bits[word]);
    };
    const auto put = [&](int, int64_t chunk) {
        if (chunks.total() != many) return;
        const Word* next = found + chunks.before[size_t(chunk)];
        for (int64_t word = chunks.begin(chunk); word < chunks.end(chunk); ++word) {
            std::fill_n(x + 64 * word, chunks.length(word), Word(0));
            for (uint64_t left = bits[word]; left; left &= left - 1) x[64 * word + lowest_bit(left)] = *next++;
        }
    };
    run_phases({{chunks.count(), look, [&] { chunks.add_up(); }}, {chunks.count(), put}}, threads, stop);
    return chunks.total() == many;
}

}  // namespace lowsparse
