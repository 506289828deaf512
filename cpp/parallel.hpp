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

// Threads that live on between two sweeps, as to start one takes as long as a short sweep. A call has places for so many
// helpers; who is awake takes one, and when the caller is done the places that are left are closed: a thread that has
// not woken up by then is not waited for.
class Team {
    static constexpr uint64_t one_round = uint64_t(1) << 32;  // the places of a round are counted below

    std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<std::thread> members_;
    std::atomic<uint64_t> open_{0};  // the round, and the places left in it
    std::atomic<int> finished_{0};   // helpers of this round
    // for those who have a place, until they have finished
    int places_ = 0;
    const std::function<void(int)>* job_ = nullptr;  // null: go home

    static int places(uint64_t open) { return int(open % one_round); }

    // Waits for a place and takes it; awake at first, as the next sweep often comes soon and to wake up takes a while.
    uint64_t take_place() {
        const auto asleep = std::chrono::steady_clock::now() + std::chrono::microseconds(1000);
        for (;;) {
            uint64_t open = open_;
            while (places(open) > 0)
                if (open_.compare_exchange_weak(open, open - 1)) return open;
            if (std::chrono::steady_clock::now() < asleep) {
                std::this_thread::yield();
            } else {
                std::unique_lock<std::mutex> lock(mutex_);
                wake_.wait(lock, [&] { return places(open_) > 0; });
            }
        }
    }
    void member() {
        for (;;) {
            const int id = id_of(take_place());
            if (job_ == nullptr) return;
            (*job_)(id);
            ++finished_;
        }
    }
    int id_of(uint64_t taken) const { return places_ - places(taken) + 1; }  // 1 .. places
    void call(const std::function<void(int)>* job, int wanted) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            job_ = job;
            places_ = wanted;
            finished_ = 0;
            open_ = (open_ / one_round + 1) * one_round + uint64_t(wanted);
        }
        wake_.notify_all();
    }

  public:
    const long owner = process_id();

    // job(id) for ids from 0, the calling thread's, to threads-1; for fewer if the others are not there in time
    void run(int threads, const std::function<void(int)>& job) {
        try {
            while (int(members_.size()) < threads - 1) members_.emplace_back(&Team::member, this);
        } catch (const std::system_error&) {
            // those that are there do the work
        }
        call(&job, std::min(threads - 1, int(members_.size())));
        job(0);
        uint64_t open = open_;
        while (!open_.compare_exchange_weak(open, open / one_round * one_round)) {
        }
        const int helpers = places_ - places(open);
        for (int waited = 0; finished_ < helpers; ++waited) wait_awhile(waited);
    }
    ~Team() {
        call(nullptr, int(members_.size()));
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
