// Eviction, from the device and from the host.
//
// On the device a whole leaf leaves for full slots; window data and states leave also from inside
// the tree. A leaf with a host copy is demoted: it stays in the tree, on the host. One without is
// deleted, or, under write_back, copied first. On the host a node is a leaf only when it is nowhere
// else and has no children at all.
//
// What readers get wrong: at a leaf everything goes together; inside the tree only what was asked
// for goes, with what is useless without it. Window data that leaves makes a tombstone, and says
// nothing.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Free device slots; returns how many came free. What a component frees on the way of another
// counts for it.
Counts evict(State& state, const Counts& counts);

// Free host slots; returns how many came free.
Counts evict_host(State& state, const Counts& counts);

// Evict what is missing for `needed` free host slots; whether there is room then.
bool free_host_slots(State& state, const Counts& needed);

// Refuse counts that cannot be asked for. Throws: BadArgument.
void check_counts(const Counts& counts);

}  // namespace kvcanon
