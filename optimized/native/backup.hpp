// Backup: copies of nodes from the device to the host.
//
// A node is never skipped because a node above it has no host copy. Under write-through the nodes
// above are copied first; under write_back they need no copy. Where the host has too few free
// slots, the result of the insert counts the pages that were declined.
#pragma once

#include "state.hpp"

namespace kvcanon {

// The components that a node has on the device and not on the host.
std::vector<Part> missing(const State& state, Node* node);

// How many slots parts have on a medium, by component.
Counts counted(const std::vector<Part>& parts, Medium medium);

// The nodes to copy so that this node is usable from the host, in the order of the copies: those on
// its path, root first, and those with window data that was healed after they were copied.
std::vector<Node*> backup_chain(const State& state, Node* node);

// Enqueue the backups that make this node usable from the host: of the nodes on its path, root
// first, and of window data that was healed after its node was copied. Stops where the host has too
// few free slots.
std::vector<uint64_t> back_up(State& state, Node* node);

// Add what a victim lacks on the host to the copy of the victims, if the host has free slots for
// all of it. To free some may end the departures. The copy locks nothing, since the nodes above may
// be the next victims.
void back_up_victim(State& state, Departures& departures, Node* victim);

// Pages on the path to a node that were hit often enough and have no host copy.
int64_t unbacked_pages(const State& state, Node* end);

}  // namespace kvcanon
