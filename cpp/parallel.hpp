// Blocks of work on threads. The blocks depend on the data alone, never on the number of threads; every block has
// sums of its own, which are added in the blocks' order, so the result has the same bits for every number of threads.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#if !defined(_WIN32)
#include <unistd.h>
#endif

namespace lowsparse {

// Column boundaries of `blocks` blocks. The first has half as many entries again as the mean, the last half as many:
// threads take the blocks in this order, so those that run faster take more, and all end at about the same time.
inline std::vector<int64_t> split_columns(const int64_t* indptr, int64_t n, int64_t nnz, int64_t blocks) {
    std::vector<int64_t> bounds{0};
    for (int64_t b = 1; b < blocks; ++b) {
        const double share = double(b) / double(blocks);
        const int64_t target = int64_t(double(nnz) * share * (1.5 - 0.5 * share));
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

// Awake at first, as to sleep and wake up would take as long as a short phase.
inline void wait_awhile(int waited) {
    if (waited < 2000)
        std::this_thread::yield();
    else
        std::this_thread::sleep_for(std::chrono::microseconds(50));
}

inline long process_id() {
#if defined(_WIN32)
    return 0;  // there is no fork
#else
    return long(getpid());
#endif
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

// Threads that live on between two sweeps, as to start one takes as long as a short sweep.
class Team {
    std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<std::thread> members_;
    int wanted_ = 0;
    const std::function<void(int)>* job_ = nullptr;  // null: go home
    std::atomic<uint64_t> round_{0};
    std::atomic<int> running_{0};

    void member(int id, uint64_t seen) {
        for (;;) {
            // The next sweep often comes soon, and to wake up takes a while.
            const auto asleep = std::chrono::steady_clock::now() + std::chrono::microseconds(300);
            while (round_ == seen && std::chrono::steady_clock::now() < asleep) std::this_thread::yield();
            std::unique_lock<std::mutex> lock(mutex_);
            wake_.wait(lock, [&] { return round_ != seen; });
            seen = round_;
            const auto* job = job_;
            const bool wanted = id <= wanted_;
            lock.unlock();
            if (job == nullptr) return;
            if (wanted) {
                (*job)(id);
                --running_;
            }
        }
    }
    void call(const std::function<void(int)>* job, int wanted) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            job_ = job;
            running_ = wanted_ = wanted;
            ++round_;
        }
        wake_.notify_all();
    }

  public:
    const long owner = process_id();

    // job(id) for the ids 0 .. threads-1, or fewer if the system gives no more threads; 0 is the calling thread
    void run(int threads, const std::function<void(int)>& job) {
        try {
            while (int(members_.size()) < threads - 1)
                members_.emplace_back(&Team::member, this, int(members_.size()) + 1, round_.load());
        } catch (const std::system_error&) {
            // those that are there do the work
        }
        call(&job, std::min(threads - 1, int(members_.size())));
        job(0);
        for (int waited = 0; running_ > 0; ++waited) wait_awhile(waited);
    }
    ~Team() {
        call(nullptr, 0);
        for (std::thread& member : members_) member.join();
    }
};

// job(id) on the team that is idle, or else on a new one. One stays, asleep to the end of the process; those of a
// parent process are not there after a fork, and left alone.
inline void run_on_team(int threads, const std::function<void(int)>& job) {
    static std::atomic<Team*> idle{nullptr};
    if (threads <= 1) return job(0);
    Team* team = idle.exchange(nullptr);
    if (team == nullptr || team->owner != process_id()) team = new Team;
    team->run(threads, job);
    Team* nobody = nullptr;
    if (!idle.compare_exchange_strong(nobody, team)) delete team;
}

// Runs the phases one after the other on `threads` threads, the calling one among them. Between two phases a worker
// waits for the others.
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
                for (int waited = 0; !progress[p].done && !stop(id); ++waited) wait_awhile(waited);
                if (stop(id)) return;
            }
        } catch (...) {
            const std::lock_guard<std::mutex> lock(mutex);
            failure = std::current_exception();
            stop.set();
        }
    };
    run_on_team(threads, worker);
    if (failure) std::rethrow_exception(failure);
}

}  // namespace lowsparse
