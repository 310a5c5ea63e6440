#include "turn.hpp"

#include <pthread.h>

#include <atomic>

#include "reset.hpp"

namespace kvcanon {

namespace {

std::atomic<uint32_t> forks_seen{0};

void count_fork() { forks_seen.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

uint32_t forks() { return forks_seen.load(std::memory_order_relaxed); }

void watch_forks() {
    static const int watching = pthread_atfork(nullptr, nullptr, &count_fork);
    if (watching != 0) throw std::bad_alloc();
}

void break_off(Gate& gate, const char* why) noexcept {
    try {
        gate.broken = why;
    } catch (...) {
        // Short enough to need no memory.
        gate.broken = "out of memory";
    }
}

void reset_or_recover(State& state, Gate& gate) {
    if (gate.broken.empty()) {
        reset(state);
        return;
    }
    // If this fails too, the gate stays closed, and the next `reset` begins anew.
    recover(state);
    gate.broken.clear();
}

void forget(State& state, Gate& gate) {
    if (state.holds.empty() && state.host_holds.empty()) {
        reset_or_recover(state, gate);
        return;
    }
    recover(state);
    gate.broken.clear();
}

}  // namespace kvcanon
