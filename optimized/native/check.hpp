// The tree's own books, audited: for tests, which call it after every step.
//
// What readers get wrong: these are not the laws. A law says what any cache must do; this says that
// what this one keeps twice, for speed, is the same twice.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Throws: SpecViolation, which says what does not agree.
void check(State& state);

}  // namespace kvcanon
