// What must hold after every step, beyond the tree's own books.
#pragma once

#include <array>
#include <set>
#include <string>

#include "state.hpp"

namespace kvcanon::fuzz {

// End the run: something does not hold.
[[noreturn]] void fail(const char* what);

inline void require(bool holds, const char* what) {
    if (!holds) fail(what);
}

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
