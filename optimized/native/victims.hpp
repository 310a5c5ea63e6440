// Victims: which nodes may be evicted, and in which order.
//
// Each pool has a queue of candidates, a heap whose entries may be out of date: a node that was
// used after its entry was made has a larger key, and is put back with that key when its entry
// comes up. So using a node costs nothing here.
//
// A node leaves as a whole only if it is a leaf; window data and mamba states may leave any node.
// Leaves are ranked by the eviction policy, other data by LRU, the upper node first on a tie.
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

// Make sure that a node is in every queue that it is a candidate for. Call it after each change
// that can make a node a candidate.
void consider(State& state, Node* node);

// Call it when the key of a node may have become smaller, which happens only under MRU.
void requeue(State& state, Node* node);

// Take the next victim out of its queue; nullptr where there is none. The caller evicts it.
Node* next_victim(State& state, Component component, Medium medium);

// Whether one candidate's turn is after another's.
inline bool comes_after(const Candidate& a, const Candidate& b) {
    return a.first != b.first ? a.first > b.first : a.second > b.second;
}

// The entry of a node with its present key.
Candidate candidate(const State& state, const Node* node, Component component);

// The rank of a leaf under the policy; the smallest leaves first.
std::pair<int64_t, int64_t> rank(const State& state, const Node* node);

}  // namespace kvcanon
