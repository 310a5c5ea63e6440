// What must hold after every step, beyond the consistency that check.cpp audits.
#pragma once

#include <array>
#include <set>
#include <string>

#include "stamps.hpp"

namespace kvcanon::fuzz {

// End the run: something does not hold.
[[noreturn]] void fail(const char* what);

inline void require(bool holds, const char* what) {
    if (!holds) fail(what);
}

// Checks laws of a state that check.cpp does not: which data may be where, and which nodes are
// locked.
void require_lawful(const State& state);

// Checks that each slot of the tree has the bytes of its page, once they arrived.
void require_stamped(const State& state, Stamps& stamps);

// A digest of all state that a refused call must not change.
uint64_t digest(const State& state);

// What is on each medium, according to the events alone.
class Hearer {
  public:
    void hear(State& state);
    // Takes the events, then checks that they agree with the tree.
    void require_true(State& state);

  private:
    std::array<std::set<std::string>, MEDIA> there_;
};

}  // namespace kvcanon::fuzz
