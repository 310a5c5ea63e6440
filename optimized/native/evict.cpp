#include "evict.hpp"

#include <algorithm>
#include <cassert>
#include <new>

#include "backup.hpp"
#include "departures.hpp"
#include "errors.hpp"
#include "invariants.hpp"
#include "slots.hpp"
#include "victims.hpp"

namespace kvcanon {

namespace {

// Under write_back, add what a victim lacks on the host to the copy of the victims. This may evict
// from the host, and so end the departures of earlier victims. The victim itself stays as it is: it
// is on the device, and eviction from the host leaves such data alone.
void copy_victim(State& state, Departures& departures, Node* node) {
    if (!state.config.writes_back()) return;
    back_up_victim(state, departures, node);
    assert(node->data[FULL].on(GPU) && !node->departing);
}

// Demote a leaf, or delete it if it has no host copy. It waits for its own copy, or for one before
// it, so that victims leave in order.
void evict_leaf(State& state, Departures& departures, Node* node) {
    copy_victim(state, departures, node);
    if (!node->data[FULL].on(CPU)) {
        // Nodes below it may be victims that have not left.
        if (node->first_child != nullptr) end_departures(state, departures);
        delete_leaf(state, node);
    } else if (departures.any()) {
        depart(state, departures, node, {FULL, SWA, MAMBA}, true);
    } else {
        vacate(state, node, GPU);
    }
}

// Drop one component of an inner node; the mamba state goes with the window that it needs. It waits
// as a leaf does.
void evict_from_inner(State& state, Departures& departures, Node* node, Component component) {
    std::vector<Component> leaving{component};
    if (component == SWA && state.config.mamba) leaving.push_back(MAMBA);
    copy_victim(state, departures, node);
    if (departures.any()) {
        depart(state, departures, node, leaving, false);
    } else {
        for (const Component each : leaving) drop(state, node, each, GPU);
    }
}

// Under write_back, drop host copies of nodes that are on the device, too.
void evict_duplicates(State& state, int64_t enough) {
    while (state.free_slots(FULL, CPU) < enough) {
        Node* node = next_duplicate(state);
        if (node == nullptr) return;
        vacate(state, node, CPU);
    }
}

// Each round takes the first victim out of its queue, so that the loop ends.
void evict_from_device(State& state, Departures& departures, Component component, int64_t enough) {
    while (state.free_slots(component, GPU) < enough) {
        Node* node = next_victim(state, component, GPU);
        if (node == nullptr) return;
        if (is_device_leaf(node)) {
            evict_leaf(state, departures, node);
        } else {
            evict_from_inner(state, departures, node, component);
        }
        assert(next_victim(state, component, GPU) != node);
    }
}

// Each round takes the first victim out of its queue, or lets all departing ones leave. Only in an
// eviction from the device there are some.
void evict_from_host(State& state, Departures* departures, Component component, int64_t enough) {
    if (component == FULL) evict_duplicates(state, enough);
    while (state.free_slots(component, CPU) < enough) {
        Node* node = next_victim(state, component, CPU);
        if (node == nullptr) return;
        if (node->departing) {
            // It is on the host alone only after it has left.
            assert(departures != nullptr);
            end_departures(state, *departures);
        } else if (is_host_leaf(node)) {
            delete_from_host(state, node);
        } else {
            drop(state, node, component, CPU);
        }
    }
}

// The free slots to reach so that `counts` more are free than now, at most the pool's size.
int64_t goal(const State& state, Component component, Medium medium, const Counts& before,
             const Counts& counts) {
    assert(counts[component] >= 0);
    return before[component] +
           std::min(counts[component], state.config.capacity(component, medium));
}

Counts freed(State& state, Medium medium, const Counts& before) {
    Counts freed = free_slot_counts(state, medium);
    for (const Component component : ALL_COMPONENTS) {
        freed[component] -= before[component];
        assert(freed[component] >= 0);
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
    Departures departures;
    try {
        for (const Component component : ALL_COMPONENTS) {
            if (!state.config.has(component)) continue;
            evict_from_device(state, departures, component,
                              goal(state, component, GPU, before, counts));
        }
        end_departures(state, departures);
    } catch (const std::bad_alloc&) {
        // Something may be half changed: nobody touches it before the recovery forgets all of it.
        // The copy of the victims may have settled and be gone.
        throw;
    } catch (...) {
        undo_departures(state, departures);
        throw;
    }
    assert(nobody_departs(state));
    return freed(state, GPU, before);
}

Counts evict_host(State& state, const Counts& counts, Departures* departures) {
    const Counts before = free_slot_counts(state, CPU);
    for (const Component component : ALL_COMPONENTS) {
        if (!state.config.has(component)) continue;
        evict_from_host(state, departures, component, goal(state, component, CPU, before, counts));
    }
    return freed(state, CPU, before);
}

bool free_host_slots(State& state, const Counts& needed, Departures* departures) {
    for (const Component component : ALL_COMPONENTS) {
        Counts lacking;
        lacking[component] = needed[component] - state.free_slots(component, CPU);
        if (lacking[component] <= 0) continue;
        evict_host(state, lacking, departures);
        if (needed[component] > state.free_slots(component, CPU)) return false;
    }
    return true;
}

}  // namespace kvcanon
