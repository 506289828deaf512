// Blocks of columns on threads. The blocks depend on the data alone, never on the number of threads; every block has
// sums of its own, which are added in the blocks' order, so the result has the same bits for every number of threads.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
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

// Work that is done in any order: work(worker, block, stop) for every block; it should return soon once stop is true.
struct Phase {
    int64_t blocks;
    std::function<void(int, int64_t, const std::atomic<bool>&)> work;
};

// Runs the phases one after the other on a team of threads. The calling thread only waits, and calls interrupted()
// ten times a second; if that returns true the team is told to stop and false is returned.
template <class Interrupted>
bool run_phases(const std::vector<Phase>& phases, int threads, Interrupted interrupted) {
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<bool> stop{false};
    std::exception_ptr failure;
    const std::unique_ptr<std::atomic<int64_t>[]> next(new std::atomic<int64_t>[phases.size()]());
    std::vector<int> arrived(phases.size(), 0);  // workers that are through with a phase
    int finished = 0;

    const auto worker = [&](int id) {
        for (size_t p = 0; p < phases.size(); ++p) {
            try {
                for (int64_t b; !stop && (b = next[p]++) < phases[p].blocks;) phases[p].work(id, b, stop);
            } catch (...) {
                const std::lock_guard<std::mutex> lock(mutex);
                failure = std::current_exception();
                stop = true;
            }
            std::unique_lock<std::mutex> lock(mutex);
            if (++arrived[p] == threads || stop) changed.notify_all();
            changed.wait(lock, [&] { return arrived[p] >= threads || stop; });
        }
        const std::lock_guard<std::mutex> lock(mutex);
        ++finished;
        changed.notify_all();
    };
    std::vector<std::thread> team;
    try {
        for (int id = 0; id < threads; ++id) team.emplace_back(worker, id);
    } catch (...) {  // the system gives no more threads: those that run do the work
        const std::lock_guard<std::mutex> lock(mutex);
        threads = int(team.size());
        changed.notify_all();
        if (team.empty()) throw;
    }
    bool was_interrupted = false;
    {
        std::unique_lock<std::mutex> lock(mutex);
        while (!changed.wait_for(lock, std::chrono::milliseconds(100), [&] { return finished == threads; })) {
            lock.unlock();
            if (!was_interrupted && interrupted()) was_interrupted = stop = true;
            lock.lock();
            if (stop) changed.notify_all();
        }
    }
    for (std::thread& member : team) member.join();
    if (failure) std::rethrow_exception(failure);
    return !was_interrupted;
}

}  // namespace lowsparse
