// Victims: who may leave, and in which order.
//
// Each pool has a queue of candidates, a heap whose entries may be out of date: a node that was
// used since its entry was made has a larger key now, and is put back with it when its turn comes.
// So a use costs nothing here, and a candidate is sorted once for each time that it nearly left.
//
// What readers get wrong: a whole node may leave only as a leaf, but window data and states may
// leave from anywhere. The first are ranked by the policy, the others always by their last use, of
// those used at once the upper first.
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

// Make sure that a node is in every queue that it is a candidate for. Whoever changes what makes a
// candidate calls it.
void consider(State& state, Node* node);

// A node's key may have become smaller; only under MRU does it.
void requeue(State& state, Node* node);

// Take the next victim out of its queue; nullptr where there is none. The caller evicts it.
Node* next_victim(State& state, Component component, Medium medium);

// Whether one candidate's turn is after another's.
inline bool comes_after(const Candidate& a, const Candidate& b) {
    return a.first != b.first ? a.first > b.first : a.second > b.second;
}

// What a queue would say of a node now.
Candidate candidate(const State& state, const Node* node, Component component);

// The rank of a leaf under the policy; the smallest leaves first.
std::pair<int64_t, int64_t> rank(const State& state, const Node* node);

}  // namespace kvcanon
