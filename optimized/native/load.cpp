#include "load.hpp"

#include <algorithm>
#include <cassert>

#include "evict.hpp"
#include "lock.hpp"
#include "match.hpp"
#include "slots.hpp"
#include "transfer.hpp"
#include "tree.hpp"

namespace kvcanon {

namespace {

bool on_host_only(const Data& data) { return !data.on(GPU) && data.on(CPU); }

// The first page whose data of a component is needed at the end.
int64_t first_of_use(const State& state, Component component, int64_t end_pages) {
    if (component == SWA) return window_start(state, end_pages);
    return component == MAMBA ? end_pages - 1 : 0;
}

// The slots that the load of a walked path needs, found without cutting a node.
Counts needed_for(const State& state, const Path& path, int32_t end_pages) {
    Counts needed;
    for (const Stop& stop : path) {
        const int64_t end = stop.node->start + stop.shared;
        for (const Component component : ALL_COMPONENTS) {
            const int64_t begin = first_of_use(state, component, end_pages);
            if (!on_host_only(stop.node->data[component]) || end <= begin) continue;
            if (component == MAMBA) {
                needed[MAMBA] += stop.shared == stop.node->pages ? 1 : 0;
            } else {
                needed[component] += end - std::max<int64_t>(stop.node->start, begin);
            }
        }
    }
    return needed;
}

// The parts to load, root first, once the path is cut at its window.
std::vector<Part> parts_of(const State& state, Node* end) {
    std::vector<Part> parts;
    for (Node* node : path_to(end)) {
        for (const Component component : ALL_COMPONENTS) {
            if (on_host_only(node->data[component]) &&
                node->end() > first_of_use(state, component, end->end())) {
                parts.push_back({node, component});
            }
        }
    }
    return parts;
}

// Evict until the needed slots are free, while a hold protects the path. Under write_back the
// engine copies, and if it raises the hold is released here.
Counts free_device_slots(State& state, const Counts& needed, uint64_t receipt) {
    try {
        return evict(state, shortage(needed, free_slot_counts(state, GPU)));
    } catch (...) {
        release_hold(state, receipt);
        throw;
    }
}

}  // namespace

LoadedBack load_back(State& state, const Key& key, int64_t quota_pages) {
    const Path path = require(state, key);
    const Counts needed = needed_for(state, path, key.pages);
    if (!needed) return {LoadDecision::NOTHING_TO_LOAD, 0, {}, {}};
    if (needed[FULL] < state.config.load_back_threshold_pages && needed[SWA] == 0 &&
        needed[MAMBA] == 0) {
        return {LoadDecision::BELOW_THRESHOLD, 0, {}, {}};
    }
    if (quota_pages >= 0 && needed[FULL] > quota_pages) {
        return {LoadDecision::OVER_QUOTA, 0, {}, {}};
    }
    Node* end = node_ending_at(state, path, key.pages);
    // The path is held before anything is evicted, so that it does not evict itself.
    const uint64_t receipt = hold(state, end, held_window_start(state, end)).receipt;
    const Counts evicted = free_device_slots(state, needed, receipt);
    for (const Component component : ALL_COMPONENTS) {
        state.counters.evicted_for_load_slots[component] +=
            static_cast<uint64_t>(evicted[component]);
    }
    if (shortage(needed, free_slot_counts(state, GPU))) {
        release_hold(state, receipt);
        return {LoadDecision::NO_ROOM, 0, {}, evicted};
    }
    const uint64_t transfer_id =
        enqueue(state, Direction::LOAD_BACK, parts_of(state, end), state.holds.at(receipt));
    SlotLists slots = device_slots(state, path_to(end), true);
    assert(slots[FULL].slots() == key.pages);
    return {LoadDecision::ENQUEUED, transfer_id, needed, evicted, std::move(slots)};
}

}  // namespace kvcanon
