// Who may call a cache now: one call at a time, only in the process that made the cache, and none
// while the state may be inconsistent.
//
// The GIL does not keep two calls apart. An engine is Python code: it may call the cache again, or
// let another thread run, in the middle of a call.
#pragma once

#include <new>
#include <string>

#include "errors.hpp"
#include "state.hpp"

namespace kvcanon {

// How many forks lie between this process and the one that loaded the module.
uint32_t forks();

// Count forks from now on.
void watch_forks();

struct Gate {
    // Whether a call is under way.
    bool busy = false;
    // Why no call is possible until `reset`; empty where calls are.
    std::string broken;
    const uint32_t made_after_forks = forks();
};

// What to tell a caller of a closed gate.
inline std::string refusal_of(const Gate& gate) {
    return gate.broken + "; call `reset`, which forgets the tree and all receipts";
}

// Keeps other calls out while it lives.
class Turn {
  public:
    enum class For { CALL, RECOVERY };

    // Throws: SpecViolation, Unusable.
    explicit Turn(Gate& gate, For purpose = For::CALL) : gate_(gate) {
        if (gate.made_after_forks != forks()) {
            throw Unusable(
                "the cache belongs to the process that this one was forked from; make a cache of "
                "its own in each process, after the fork");
        }
        if (gate.busy) {
            throw SpecViolation(
                "called in the middle of another call, by its engine or from a second thread; a "
                "cache takes one call at a time");
        }
        if (purpose == For::CALL && !gate.broken.empty()) {
            throw Unusable(refusal_of(gate));
        }
        gate.busy = true;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() { gate_.busy = false; }

  private:
    Gate& gate_;
};

// Close the gate after a failure that left the state inconsistent, or the engine without a thread.
void break_off(Gate& gate, const char* why) noexcept;

// Do the work of a call. If memory runs out before the work changed anything, the call is refused;
// after it the gate is closed until `reset`. Errors of the cache and of the engine pass through:
// the state is consistent where they are thrown. Throws: OutOfMemory, and what the work throws.
template <typename Work>
auto with_memory(State& state, Gate& gate, Work work) {
    state.changed = false;
    try {
        return work();
    } catch (const std::bad_alloc&) {
        if (!state.changed) throw OutOfMemory("memory ran out; the call was refused");
        break_off(gate, "memory ran out in the middle of an earlier call");
        throw OutOfMemory(
            "memory ran out in the middle of the call; call `reset`, which forgets the tree and "
            "all receipts");
    }
}

// The operation `reset`, once no copy is running in a cache that was closed.
void reset_or_recover(State& state, Gate& gate);

// The same where holds are open, which it forgets as well.
void forget(State& state, Gate& gate);

}  // namespace kvcanon
