// Audits the redundant state of a tree. Tests call it after every step.
//
// These are not the laws. A law says what every cache must do; this checks that data which this
// cache stores twice, for speed, agrees.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Throws: SpecViolation with the first disagreement.
void check(State& state);

// Check a few nodes each on its own, and others the next time: a small tree is checked as a whole.
// Where asserts are on, each call of a cache ends with it. Throws: SpecViolation.
void check_some(State& state);

}  // namespace kvcanon
