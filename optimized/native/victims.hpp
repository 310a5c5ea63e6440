// Victims: which nodes may be evicted, and in which order.
//
// A node leaves as a whole only if it is a leaf; window data and mamba states may leave any node.
// Leaves are ranked by the eviction policy, other data by LRU, the upper node first on a tie.
//
// Under write_back a full host also gives up copies of what the device has: those of inner nodes
// first, then those of leaves, each in the order of the policy.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Whether a node may leave the device as a whole: children on the host alone do not matter.
inline bool is_device_leaf(const Node* node) {
    return node->parent != nullptr && node->data[FULL].on(GPU) && node->device_children == 0 &&
           !node->locked();
}

// Whether a node may leave the host, and the tree, as a whole.
inline bool is_host_leaf(const Node* node) {
    return !node->data[FULL].on(GPU) && node->data[FULL].on(CPU) && !node->locked() &&
           node->first_child == nullptr;
}

// Put a node into every queue that it is a candidate for, at the place of its present key, and
// remove it from the others. Call it after each change of the node's data, locks, children, start
// or recency.
void requeue(State& state, Node* node);

// The same for a node and all nodes above it.
void requeue_path(State& state, Node* end);

// The node whose data is evicted next; nullptr where there is none.
Node* next_victim(const State& state, Component component, Medium medium);

// The node whose host copy is dropped next, because the device has all of it; nullptr where there
// is none.
Node* next_duplicate(const State& state);

// Whether a queue has exactly its candidates, with their present keys, for tests.
bool is_queued_right(const State& state, const Node* node);

}  // namespace kvcanon
