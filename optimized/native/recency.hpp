// Recency: when the data of a path was last used, how often it was hit, and with which priority.
//
// Nobody else writes these fields of a node that is in the tree, except the last use of data that a
// node is about to own. The victim queues are in order again when these functions return.
#pragma once

#include "state.hpp"

namespace kvcanon {

// A match ended at this node: all data that the prefix needs was used at this tick, which is its
// full data, its window, and the mamba state at the end.
void record_match(State& state, Node* end, uint64_t tick);

// An insert ended at this node. It is a use as well, a hit of every node that ends after
// `counted_pages`, and it raises priorities that are lower.
void record_insert(State& state, Node* end, uint64_t tick, int64_t counted_pages, int64_t priority);

}  // namespace kvcanon
