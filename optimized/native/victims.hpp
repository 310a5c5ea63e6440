// Victims: which nodes may be evicted, and in which order.
//
// A node leaves as a whole only if it is a leaf; window data and mamba states may leave any node.
// Leaves are ranked by the eviction policy, other data by LRU, the upper node first on a tie.
//
// Under write_back a full host also gives up copies of what the device has: those of inner nodes
// first, then those of leaves, each in the order of the policy.
//
// THE PROTOCOL OF THE QUEUES. The rule is one function, `entry_of` in victims.cpp: it says from the
// node alone whether a queue has it, and with which key. The queues must agree with the rule
// whenever somebody asks for a victim, and between calls of the cache. So whoever writes what the
// rule reads calls `requeue` for that node before it returns. These are all who do:
//
//     what the rule reads                     who writes it
//     the slots of its data, device_children  `place` and `take` (slots.cpp), of the parent, too
//     lock_refs                               `count` (lock.cpp)
//     first_child                             `add_leaf`, `remove_leaf` (tree.cpp), of the parent
//     start, and all of a new upper node      `cut` (tree.cpp)
//     last_access, hit_count, priority, used  `record_match`, `record_insert` (recency.cpp), and
//                                             `inherit`, for `remove_leaf`
//     used, of data that a node lacks         before `place`, which requeues
//
// A missed call makes data unevictable, or evicts it too early or, worse, while it is locked. Where
// asserts are on, `next_victim` checks the node that it returns, and the end of each call checks
// nodes of the tree in turn (`check_some` in check.hpp). `check` checks all of them.
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

// Bring all queues in agreement with the rule, as far as this node is concerned. The root is in
// none.
void requeue(State& state, Node* node);

// The node whose data is evicted next; nullptr where there is none.
Node* next_victim(const State& state, Component component, Medium medium);

// The node whose host copy is dropped next, because the device has all of it; nullptr where there
// is none.
Node* next_duplicate(const State& state);

// Whether the queues agree with the rule, as far as this node is concerned; for asserts and tests.
bool is_queued_right(const State& state, const Node* node);

}  // namespace kvcanon
