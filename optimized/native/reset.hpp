// Reset: forget everything in the tree.
//
// Slots that requests hold stay theirs, and namespaces keep their numbers. A reset emits one event,
// not a removal for each page.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Throws: CacheBusy while a receipt is open; a transfer in flight has one, too.
void reset(State& state);

}  // namespace kvcanon
