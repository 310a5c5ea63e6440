// Audits the redundant state of a tree. Tests call it after every step.
//
// These are not the laws. A law says what every cache must do; this checks that data which this
// cache stores twice, for speed, agrees.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Throws: SpecViolation with the first disagreement.
void check(State& state);

}  // namespace kvcanon
