// Victims: which nodes may be evicted, and in which order.
//
// A node leaves as a whole only if it is a leaf; window data and mamba states may leave any node.
// Leaves are ranked by the eviction policy, other data by LRU, the upper node first on a tie.
//
// Under write_back a full host also gives up copies of what the device has: those of inner nodes
// first, then those of leaves, each in the order of the policy.
//
// THE RULE OF THE QUEUES is one function, `entry_of` in victims.cpp: it says from the node alone
// whether a queue has it, and with which key. What it reads has the type `Queued`, and is written
// in `update` alone, which brings the queues in agreement with the rule. A node that they have
// wrong is never evicted, or too early or, worse, while it is locked. Where asserts are on,
// `next_victim` checks the node that it returns, and the end of each call checks nodes of the tree
// in turn
// (`check_some` in check.hpp). `check` checks all of them.
#pragma once

#include <type_traits>

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
           node->data[FULL].host_holds == 0 && node->first_child == nullptr;
}

// Bring all queues in agreement with the rule, as far as this node is concerned; `update` does it.
// The root is in none.
void requeue(State& state, Node* node);

// Write values of a node that the rule reads: `write` is given a `QueuedWriter`. Returns what it
// returns.
template <typename Write>
auto update(State& state, Node* node, Write write) {
    const QueuedWriter its(node);
    if constexpr (std::is_void_v<decltype(write(its))>) {
        write(its);
        requeue(state, node);
    } else {
        auto answer = write(its);
        requeue(state, node);
        return answer;
    }
}

// Begin or end to rank host copies of what the device has, as write_back does.
void rank_duplicates(State& state, bool ranked);

// The node whose data is evicted next; nullptr where there is none.
Node* next_victim(const State& state, Component component, Medium medium);

// Visit the nodes of a queue, who leaves first first, until `visit` returns false.
template <typename Visit>
void visit_in_order(const State& state, Queue queue, Visit visit) {
    state.queue(queue).visit_in_order(
        [&](const Candidate& each) { return visit(state.arena.at(each.node), each); });
}

// The key that a queue has of a node, or would have.
Candidate key_of(const State& state, const Node* node, Queue queue);

// The node whose host copy is dropped next, because the device has all of it; nullptr where there
// is none.
Node* next_duplicate(const State& state);

// Whether the queues agree with the rule, as far as this node is concerned; for asserts and tests.
bool is_queued_right(const State& state, const Node* node);

}  // namespace kvcanon
