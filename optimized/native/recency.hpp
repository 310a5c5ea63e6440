// Recency: when the data of a path was last used, how often it was hit, and with which priority.
//
// A use is one of every node of its path. Where there is a host tier, each of them is told. Without
// one only leaves are ranked, and so that a use costs what it names and not its path, the node at
// its end alone knows of it: what is true of a node is what it and all nodes below it know, and a
// leaf that leaves tells its parent (`inherit`).
//
// Nobody else writes these fields of a node that is in the tree.
#pragma once

#include <vector>

#include "state.hpp"

namespace kvcanon {

// A match ended at this node: all data that the prefix needs was used at this tick, which is its
// full data, its window, and the mamba state at the end.
void record_match(State& state, Node* end, uint64_t tick);

// An insert ended at this node. It is a use as well, a hit of every node that ends after
// `counted_pages`, and it raises priorities that are lower.
void record_insert(State& state, Node* end, uint64_t tick, int64_t counted_pages, int64_t priority);

// A node is about to get data of a component, whose first use this is.
void record_first_use(State& state, Node* node, Component component, uint64_t tick);

// A leaf is about to leave: its parent takes over what it knows.
void inherit(State& state, Node* parent, const Node* leaf);

// What is true of a node.
struct Uses {
    uint64_t last_access = 0;
    int64_t hit_count = 0;
    int64_t priority = 0;
};

// What is true of each node, by index. The nodes are all, parents before their children.
std::vector<Uses> uses_of(const State& state, const std::vector<Node*>& nodes);

}  // namespace kvcanon
