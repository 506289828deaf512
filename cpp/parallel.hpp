// Blocks of work on threads. The blocks depend on the data alone, never on the number of threads; every block has
// sums of its own, which are added in the blocks' order, so the result has the same bits for every number of threads.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace lowsparse {

// Column boundaries of `blocks` blocks with about the same number of entries each.
inline std::vector<int64_t> split_columns(const int64_t* indptr, int64_t n, int64_t nnz, int64_t blocks) {
    std::vector<int64_t> bounds{0};
    for (int64_t b = 1; b < blocks; ++b) {
        const int64_t target = nnz / blocks * b;
        int64_t low = bounds.back(), high = n;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (indptr[middle] < target) low = middle + 1; else high = middle;
        }
        bounds.push_back(low);
    }
    bounds.push_back(n);
    return bounds;
}

// Says whether to stop: asked by every worker between two pieces of work. The worker on the calling thread looks for an
// interruption itself, ten times a second; what it finds is for all.
class Stop {
    using Clock = std::chrono::steady_clock;
    std::function<bool()> interrupted_;
    std::atomic<bool> flag_{false};
    Clock::time_point next_look_ = Clock::now() + interval;

  public:
    static constexpr std::chrono::milliseconds interval{100};
    bool was_interrupted = false;

    explicit Stop(std::function<bool()> interrupted) : interrupted_(std::move(interrupted)) {}
    void set() { flag_ = true; }
    bool operator()(int worker) {
        if (worker == 0 && !flag_ && Clock::now() >= next_look_) {
            if (interrupted_()) flag_ = was_interrupted = true;
            next_look_ = Clock::now() + interval;
        }
        return flag_;
    }
};

// Work in any order, work(worker, block) for each of one or more blocks, and what is to be done once all are done.
struct Phase {
    int64_t blocks;
    std::function<void(int, int64_t)> work;
    std::function<void()> then = [] {};
};

// Runs the phases one after the other on `threads` threads, the calling one among them. Between two phases a worker
// waits for the others awake, as to sleep and wake up would take as long as a short phase.
inline void run_phases(const std::vector<Phase>& phases, int threads, Stop& stop) {
    struct Progress {
        std::atomic<int64_t> next{0};       // block
        std::atomic<int64_t> completed{0};  // blocks
        std::atomic<bool> done{false};
    };
    std::vector<Progress> progress(phases.size());
    std::mutex mutex;
    std::exception_ptr failure;

    const auto worker = [&](int id) {
        try {
            for (size_t p = 0; p < phases.size(); ++p) {
                const int64_t blocks = phases[p].blocks;
                for (int64_t b; !stop(id) && (b = progress[p].next++) < blocks;) {
                    phases[p].work(id, b);
                    if (++progress[p].completed == blocks) {
                        phases[p].then();
                        progress[p].done = true;
                    }
                }
                for (int waited = 0; !progress[p].done && !stop(id); ++waited) {
                    if (waited < 2000)
                        std::this_thread::yield();
                    else
                        std::this_thread::sleep_for(std::chrono::microseconds(50));
                }
                if (stop(id)) return;
            }
        } catch (...) {
            const std::lock_guard<std::mutex> lock(mutex);
            failure = std::current_exception();
            stop.set();
        }
    };
    std::vector<std::thread> team;
    team.reserve(size_t(threads));
    try {
        for (int id = 1; id < threads; ++id) team.emplace_back(worker, id);
    } catch (const std::system_error&) {
        // the system gives no more threads: those that run do the work
    }
    worker(0);
    for (std::thread& member : team) member.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace lowsparse
