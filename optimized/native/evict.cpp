#include "evict.hpp"

#include <algorithm>
#include <tuple>

#include "backup.hpp"
#include "emit.hpp"
#include "errors.hpp"
#include "slots.hpp"
#include "tree.hpp"
#include "victims.hpp"

namespace kvcanon {

namespace {

// Free all data of a node on a medium, the full data last, and emit the removal.
void vacate(State& state, Node* node, Medium medium) {
    emit_removed(state, node, medium);
    for (const Component component : {MAMBA, SWA, FULL}) drop(state, node, component, medium);
}

// Remove a node that is on the host only, with all its data.
void delete_from_host(State& state, Node* node) {
    vacate(state, node, CPU);
    remove_leaf(state, node);
}

// All nodes below a node, each parent before its children.
std::vector<Node*> below(Node* node) {
    std::vector<Node*> found{node};
    for (size_t at = 0; at < found.size(); ++at) {
        for (Node* child = found[at]->first_child; child != nullptr; child = child->next) {
            found.push_back(child);
        }
    }
    found.erase(found.begin());
    return found;
}

// Demote a leaf, or delete it and, under write_back, the nodes below it on the host. None of them
// is locked: a lock on one would hold the leaf's full data, too.
void evict_leaf(State& state, Node* node) {
    if (state.config.writes_back()) back_up_now(state, node);
    if (node->data[FULL].on(CPU)) {
        vacate(state, node, GPU);
        return;
    }
    const std::vector<Node*> hanging = below(node);
    for (auto each = hanging.rbegin(); each != hanging.rend(); ++each) {
        delete_from_host(state, *each);
    }
    vacate(state, node, GPU);
    remove_leaf(state, node);
}

// Drop one component of an inner node; the mamba state goes with the window that it needs.
void evict_inside(State& state, Node* node, Component component) {
    if (state.config.writes_back()) back_up_now(state, node);
    drop(state, node, component, GPU);
    if (component == SWA && state.config.mamba) drop(state, node, MAMBA, GPU);
}

// Under write_back, drop host copies of nodes that are on the device, too.
void evict_duplicates(State& state, int64_t enough) {
    while (state.free_slots(FULL, CPU) < enough) {
        Node* node = next_duplicate(state);
        if (node == nullptr) return;
        vacate(state, node, CPU);
    }
}

void evict_from_device(State& state, Component component, int64_t enough) {
    while (state.free_slots(component, GPU) < enough) {
        Node* node = next_victim(state, component, GPU);
        if (node == nullptr) return;
        if (is_device_leaf(node)) {
            evict_leaf(state, node);
        } else {
            evict_inside(state, node, component);
        }
    }
}

void evict_from_host(State& state, Component component, int64_t enough) {
    if (component == FULL) evict_duplicates(state, enough);
    while (state.free_slots(component, CPU) < enough) {
        Node* node = next_victim(state, component, CPU);
        if (node == nullptr) return;
        if (is_host_leaf(node)) {
            delete_from_host(state, node);
        } else {
            drop(state, node, component, CPU);
        }
    }
}

// The free slots to reach so that `counts` more are free than now, at most the pool's size.
int64_t goal(const State& state, Component component, Medium medium, const Counts& before,
             const Counts& counts) {
    return before[component] +
           std::min(counts[component], state.config.capacity(component, medium));
}

Counts freed(State& state, Medium medium, const Counts& before) {
    Counts freed = free_slot_counts(state, medium);
    for (const Component component : ALL_COMPONENTS) {
        freed[component] -= before[component];
        state.counters.evicted_slots[medium][component] += static_cast<uint64_t>(freed[component]);
    }
    return freed;
}

}  // namespace

void check_counts(const Counts& counts) {
    for (const Component component : ALL_COMPONENTS) {
        if (counts[component] < 0) {
            throw BadArgument(name_of(component), std::to_string(counts[component]) +
                                                      " slots asked; ask for 0 or more");
        }
    }
}

Counts evict(State& state, const Counts& counts) {
    const Counts before = free_slot_counts(state, GPU);
    for (const Component component : ALL_COMPONENTS) {
        if (!state.config.has(component)) continue;
        evict_from_device(state, component, goal(state, component, GPU, before, counts));
    }
    return freed(state, GPU, before);
}

Counts evict_host(State& state, const Counts& counts) {
    const Counts before = free_slot_counts(state, CPU);
    for (const Component component : ALL_COMPONENTS) {
        if (!state.config.has(component)) continue;
        evict_from_host(state, component, goal(state, component, CPU, before, counts));
    }
    return freed(state, CPU, before);
}

bool free_host_slots(State& state, const Counts& needed) {
    evict_host(state, shortage(needed, free_slot_counts(state, CPU)));
    return !shortage(needed, free_slot_counts(state, CPU));
}

}  // namespace kvcanon
