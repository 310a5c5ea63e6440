// What must hold after every step, beyond the tree's own books.
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

// The laws of one state that no book of the tree's own shows: what may be where, and who is locked.
void require_lawful(const State& state);

// Behind each slot of the tree are the bytes of its page, once they have come.
void require_stamped(const State& state, Stamps& stamps);

// All that a refused call must leave alone, as one number.
uint64_t digest(const State& state);

// What is on each medium, to somebody who hears the events and sees nothing else.
class Hearer {
  public:
    void hear(State& state);
    // Whether that is what the tree has there; takes the events first.
    void require_true(State& state);

  private:
    std::array<std::set<std::string>, MEDIA> there_;
};

}  // namespace kvcanon::fuzz
