// What must hold after every step, beyond the consistency that check.cpp audits.
#pragma once

#include <array>
#include <set>
#include <string>
#include <vector>

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

// The hash of each page of a key, computed from its tokens alone.
std::vector<std::string> hashes_of(const State& state, const Key& key);

// The hashes of the pages on each medium, that of a store included.
using Announced = std::array<std::set<std::string>, EXTERNAL + 1>;

// What is on each medium, according to the events alone.
class Hearer {
  public:
    void hear(State& state);
    // Takes the events, then checks that they agree with the tree, and with what the store has.
    void require_true(State& state);

  private:
    Announced there_;
};

}  // namespace kvcanon::fuzz
