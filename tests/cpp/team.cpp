// The thread team (cpp/parallel.hpp) under strain, to be run under ThreadSanitizer: it ends with 0 if all sums are right.
#include "../../cpp/parallel.hpp"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

using namespace lowsparse;

namespace {

bool never() { return false; }

void expect(bool right, const char* what) {
    if (right) return;
    std::fprintf(stderr, "wrong: %s\n", what);
    std::exit(1);
}

// Three phases, each of which reads what the one before has written, on memory without atomics.
void sum_in_phases(int threads, int64_t blocks) {
    std::vector<int64_t> squares(size_t(blocks), 0), shifted(size_t(blocks), 0);
    int64_t sum = 0, total = 0;
    const Phase first{blocks, [&](int, int64_t b) { squares[size_t(b)] = b * b; },
                      [&] { for (const int64_t square : squares) sum += square; }};
    const Phase second{blocks, [&](int, int64_t b) { shifted[size_t(b)] = squares[size_t(blocks - 1 - b)] + sum; }};
    const Phase third{1, [&](int, int64_t) { for (const int64_t number : shifted) total += number; }};
    Stop stop(never);
    run_phases({first, second, third}, threads, stop);
    const int64_t expected = (blocks - 1) * blocks * (2 * blocks - 1) / 6;
    expect(sum == expected && total == expected * (blocks + 1), "a sum");
    expect(!stop.was_interrupted, "an interruption that was none");
}

// Memory of each worker's own: no two workers of a round have the same id.
void keep_apart(int threads) {
    std::vector<int64_t> done(size_t(threads), 0);
    Stop stop(never);
    run_phases({{200, [&](int worker, int64_t) { ++done[size_t(worker)]; }}}, threads, stop);
    int64_t all = 0;
    for (const int64_t blocks : done) all += blocks;
    expect(all == 200, "the number of blocks");
}

void many_short_rounds(int rounds) {
    for (int round = 0; round < rounds; ++round) {
        sum_in_phases(1 + round % 5, 1 + round % 17);
        keep_apart(1 + round % 4);
    }
}

void several_callers() {
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 4; ++caller) callers.emplace_back(many_short_rounds, 300);
    for (std::thread& caller : callers) caller.join();
}

void interrupted_midway() {
    std::atomic<int64_t> done{0};
    Stop stop([] { return true; });
    const auto work = [&](int, int64_t) {
        ++done;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    run_phases({{1000000, work}, {1, [](int, int64_t) { expect(false, "work after an interruption"); }}}, 4, stop);
    expect(stop.was_interrupted && done > 0, "an interruption");
}

void failing(bool between_phases) {
    int64_t reached = 0;
    const Phase bad{40,
                    [&](int, int64_t b) { if (!between_phases && b == 23) throw std::runtime_error("a block failed"); },
                    [&] { if (between_phases) throw std::runtime_error("a block failed"); }};
    Stop stop(never);
    try {
        run_phases({bad, {1, [&](int, int64_t) { ++reached; }}}, 4, stop);
        expect(false, "an exception was lost");
    } catch (const std::runtime_error&) {
        expect(reached == 0, "work after a failure");
    }
}

// A wait in between, after which the helpers are asleep.
void after_a_rest() {
    for (int round = 0; round < 20; ++round) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        sum_in_phases(4, 30);
    }
}

}  // namespace

int main() {
    many_short_rounds(3000);
    several_callers();
    interrupted_midway();
    for (int round = 0; round < 100; ++round) failing(round % 2 == 0);
    after_a_rest();
    return 0;
}
