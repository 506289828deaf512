// Blocks of columns on threads. The blocks depend on the data alone, never on the number of threads; every block has
// sums of its own, which are added in the blocks' order, so the result has the same bits for every number of threads.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace lowsparse {

// Column boundaries of `blocks` blocks with about the same number of entries each.
inline std::vector<int64_t> split_columns(const int64_t* indptr, int64_t n, int64_t nnz, int64_t blocks) {
    std::vector<int64_t> bounds{0};
    for (int64_t b = 1; b < blocks; ++b) {
        const int64_t target = nnz / blocks * b;
        int64_t j = bounds.back();
        int64_t low = j, high = n;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (indptr[middle] < target) low = middle + 1; else high = middle;
        }
        bounds.push_back(low);
    }
    bounds.push_back(n);
    return bounds;
}

// Runs work(worker, block) for every block on up to `threads` threads. While they run, the calling thread only waits,
// and calls interrupted() ten times a second; once that returns true the workers are told to stop (the flag they are
// given) and false is returned.
template <class Work, class Interrupted>
bool run_blocks(int64_t blocks, int threads, Work work, Interrupted interrupted) {
    std::atomic<bool> stop{false};
    std::atomic<int64_t> next{0};
    std::exception_ptr failure;
    std::mutex mutex;
    std::condition_variable finished;
    if (threads > blocks) threads = int(blocks);
    int running = threads;

    const auto worker = [&](int id) {
        try {
            for (int64_t b; !stop && (b = next++) < blocks;) work(id, b, stop);
        } catch (...) {
            const std::lock_guard<std::mutex> lock(mutex);
            failure = std::current_exception();
            stop = true;
        }
        const std::lock_guard<std::mutex> lock(mutex);
        if (--running == 0) finished.notify_one();
    };
    std::vector<std::thread> team;
    try {
        for (int id = 0; id < threads; ++id) team.emplace_back(worker, id);
    } catch (...) {  // the system gives no more threads: those that run do the work
        const std::lock_guard<std::mutex> lock(mutex);
        running -= threads - int(team.size());
        if (team.empty()) throw;
    }
    bool was_interrupted = false;
    {
        std::unique_lock<std::mutex> lock(mutex);
        while (!finished.wait_for(lock, std::chrono::milliseconds(100), [&] { return running == 0; })) {
            lock.unlock();
            if (!was_interrupted && interrupted()) was_interrupted = stop = true;
            lock.lock();
        }
    }
    for (std::thread& t : team) t.join();
    if (failure) std::rethrow_exception(failure);
    return !was_interrupted;
}

}  // namespace lowsparse
