// What the asserts of the core ask: states that must be where a module begins or ends its work, and
// states that must never be.
//
// A release build has none of these. The sanitizer builds, the fuzz player and any debug build have
// them; most take constant time, and none more than the call itself names.
#pragma once

#include <algorithm>

#include "state.hpp"

namespace kvcanon {

// How many slots a node's data of a component has, where it has any.
inline int32_t slots_due(const Node* node, Component component) {
    return component == MAMBA ? 1 : node->pages;
}

// Whether a node owns no slot, no lock or hold covers it, and no queue has it, so that it may be
// released.
inline bool is_bare(const Node* node) {
    for (const Component component : ALL_COMPONENTS) {
        const Data& data = node->data[component];
        if (data.on(GPU) || data.on(CPU)) return false;
        if (data.lock_refs != 0 || data.host_holds != 0) return false;
    }
    return node->queued == 0 && !node->departing && node->device_children == 0;
}

// Whether all counts of a pool are possible together.
inline bool is_possible(const Pool& pool) {
    return 0 <= pool.protected_slots && pool.protected_slots <= pool.owned_slots &&
           0 <= pool.leaving_slots &&
           pool.free.size() + pool.held.size() + pool.owned_slots + pool.leaving_slots <=
               pool.free.capacity();
}

// Whether a client or the free list has one of these slots.
inline bool any_has_owner(const Pool& pool, const Runs& slots) {
    for (const Run& run : slots) {
        for (int32_t at = 0; at < run.size; ++at) {
            const Slot slot = run.begin + at;
            if (pool.free.contains(slot) || pool.held.contains(slot)) return true;
        }
    }
    return false;
}

// Whether a walked path begins below the root, each node is the child of the one before, and each
// but the last shares all its pages.
inline bool is_joined(const Path& path) {
    const Stop* above = nullptr;
    for (const Stop& stop : path) {
        const Node* parent = stop.node->parent;
        if (stop.shared <= 0 || stop.shared > stop.node->pages || parent == nullptr) return false;
        const bool follows = above == nullptr
                                 ? parent->parent == nullptr
                                 : parent == above->node && above->shared == parent->pages;
        if (!follows || stop.node->start != parent->end()) return false;
        above = &stop;
    }
    return true;
}

// Whether a transfer is what fills each of its parts, and has a target for each source.
inline bool fills_its_parts(const Transfer& transfer) {
    for (const Part& part : transfer.parts) {
        if (part.node->data[part.component].filling[transfer.target()] != &transfer) return false;
    }
    return std::equal(
        std::begin(transfer.sources), std::end(transfer.sources), std::begin(transfer.targets),
        [](const Runs& source, const Runs& target) { return source.slots() == target.slots(); });
}

// Whether all victims have left.
inline bool nobody_departs(const State& state) {
    return std::all_of(std::begin(state.pools), std::end(state.pools),
                       [](const auto& by_medium) { return by_medium[GPU].leaving_slots == 0; });
}

}  // namespace kvcanon
