#include "host_hold.hpp"

#include <cassert>
#include <string>
#include <vector>

#include "errors.hpp"
#include "invariants.hpp"
#include "lock.hpp"
#include "victims.hpp"

namespace kvcanon {

namespace {

// Count a hold of a node's data; what the host has of it becomes protected, or evictable.
void count(State& state, Node* node, Component component, int32_t change) {
    if (!state.config.has(component)) return;
    const Data& data = node->data[component];
    const bool was_held = data.host_holds != 0;
    update(state, node, [&](QueuedWriter its) { its.of(component, &Data::host_holds) += change; });
    assert(data.host_holds >= 0);
    if (was_held == (data.host_holds != 0) || data.lock_refs != 0) return;
    const int64_t slots = data.slots(CPU).slots();
    Pool& pool = state.pool(component, CPU);
    pool.protected_slots += was_held ? -slots : slots;
    assert(is_possible(pool));
}

// Count a hold of each node that it covers. Cuts leave both parts covered, and the state that it
// ends at with the lower one.
void count_all(State& state, const HostHold& held, int32_t change) {
    for (Node* node = held.node; node->parent != nullptr; node = node->parent) {
        if (node->start < held.from_page) break;
        count(state, node, FULL, change);
        count(state, node, SWA, change);
    }
    if (held.node->parent != nullptr) count(state, held.node, MAMBA, change);
}

}  // namespace

uint64_t hold_on_host(State& state, Node* node) {
    const int64_t window_from = held_window_start(state, node);
    const Node* first = node;
    while (window_from >= 0 && first->parent != nullptr && first->start > window_from) {
        first = first->parent;
    }
    const uint64_t receipt = state.serial << 40 | state.new_id();
    const HostHold made{node, first->start};
    state.host_holds.emplace_hint(state.host_holds.end(), receipt, made);
    count_all(state, made, 1);
    return receipt;
}

void release_on_host(State& state, const Node* node, uint64_t receipt) {
    const auto found = state.host_holds.find(receipt);
    if (found == state.host_holds.end()) throw ReceiptSpent(receipt);
    const HostHold held = found->second;
    if (held.node != node) {
        throw BadArgument("receipt", "was given for node " + std::to_string(handle_of(held.node)) +
                                         " and not for " + std::to_string(handle_of(node)));
    }
    state.changed = true;
    state.host_holds.erase(found);
    count_all(state, held, -1);
}

void keep_on_host(State& state, Node* node) {
    for (const Component each : ALL_COMPONENTS) count(state, node, each, 1);
}

void let_leave_host(State& state, Node* node) {
    for (const Component each : ALL_COMPONENTS) count(state, node, each, -1);
}

bool is_any_held(const Node* node) {
    for (std::vector<const Node*> left{node}; !left.empty();) {
        const Node* next = left.back();
        left.pop_back();
        if (next->data[FULL].host_holds != 0) return true;
        for (const Node* child = next->first_child; child != nullptr; child = child->next) {
            left.push_back(child);
        }
    }
    return false;
}

}  // namespace kvcanon
