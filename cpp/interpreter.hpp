// The lock of the Python interpreter, given back for a while and taken again.
//
// A thread that asks for the lock while the interpreter ends never gets it: Python waits for ever from 3.14 on, and ends
// the thread before, in the midst of C++ frames that are not made to be left (std::terminate). Such a thread waits here
// until the process is gone.
#pragma once
#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <thread>

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace lowsparse {

class Interpreter {
    static inline std::atomic<unsigned long> main_thread_{0};

    [[noreturn]] static void wait_for_the_end() {
        for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
    }

    // Where a thread is ended by unwinding its stack (glibc), the unwinding comes no further than this.
    struct EndsHere {
        bool armed = true;
        ~EndsHere() {
            if (armed) wait_for_the_end();
        }
    };

    static bool on_main_thread() { return PyThread_get_thread_ident() == main_thread_; }

    // The main thread ends the interpreter, and goes on.
    static void lock(PyThreadState* state) {
        if (!Py_IsInitialized() && !on_main_thread()) wait_for_the_end();  // what `state` points to may be gone
        EndsHere unwinding;
        PyEval_RestoreThread(state);
        unwinding.armed = false;
    }

  public:
    // The lock is free inside the block.
    class Without {
        PyThreadState* state_ = PyEval_SaveThread();

      public:
        Without() = default;
        ~Without() { lock(state_); }
        Without(const Without&) = delete;
        Without& operator=(const Without&) = delete;
    };

    // To be called once, at import.
    static void note_main_thread() {
        const auto threading = nanobind::module_::import_("threading");
        main_thread_ = nanobind::cast<unsigned long>(threading.attr("main_thread")().attr("ident"));
#if !defined(_WIN32)
        pthread_atfork(nullptr, nullptr, [] { main_thread_ = PyThread_get_thread_ident(); });
#endif
    }

    // Whether a signal waits to be handled, such as Ctrl-C; to be asked without the lock. Signals are handled on the main
    // thread only. The others leave the lock alone: a thread that was ended here would take its stack from its helpers.
    static bool signalled() {
        if (!on_main_thread()) return false;
        const nanobind::gil_scoped_acquire locked;
        return PyErr_CheckSignals() != 0;
    }
};

}  // namespace lowsparse
