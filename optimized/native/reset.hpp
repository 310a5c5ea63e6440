// The operation `reset`: forget everything in the tree.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Refuses while receipts are open, which includes those of copies in flight. Throws: CacheBusy.
void reset(State& state);

// Make a state consistent again that a failure of memory left in the middle of a change: the tree,
// all receipts, all copies and all events that wait are forgotten; slots that requests hold stay
// theirs. No copy may be running. If this fails, for memory, it can be called again.
void recover(State& state);

}  // namespace kvcanon
