// Which victims of an eviction are copied to the host as one.
//
// Each copy costs the caller more than all else that an eviction does. But who leaves the host to
// make room for a copy depends on who has left the device before: the copy of a victim may leave
// itself, and the node above it may have become a leaf. So victims are copied together where it is
// seen at once that neither matters, as if each left before room was made for the next.
#pragma once

#include <vector>

#include "state.hpp"

namespace kvcanon {

struct Together {
    // In the order in which they leave.
    std::vector<Node*> nodes;
    // Slots that they need on the host.
    Counts lacks;
};

// The next victim of a component, and those that are copied with it, 16 at most: each lacks
// something on the host, and is needed so that `enough` slots come free.
Together victims_together(const State& state, Component component, int64_t enough);

}  // namespace kvcanon
