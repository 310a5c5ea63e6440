// Backup: copies of nodes from the device to the host.
//
// What readers get wrong: a node is never skipped because something above it has no copy. What it
// builds on is copied first (write-through), or it does not matter (write_back); and where the host
// has no room the outcome says so.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Enqueue what is missing on the host for this node to be usable from there: its chain, root first,
// and window data that was healed since its node was copied. Stops where the host has no room.
std::vector<uint64_t> back_up(State& state, Node* node);

// Copy what a node lacks on the host, where there is room for it, and wait for the copy.
void back_up_now(State& state, Node* node);

// Pages on the path to a node that were hit often enough and have no host copy.
int64_t unbacked_pages(const State& state, Node* end);

}  // namespace kvcanon
