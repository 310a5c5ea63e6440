// Reset: forget everything in the tree.
//
// What readers get wrong: slots that requests hold stay theirs, and so do the namespaces' numbers.
// Clients hear of it as of one event, not of a removal for each page.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Throws: CacheBusy while a receipt is open; a transfer in flight has one, too.
void reset(State& state);

}  // namespace kvcanon
