#include "match.hpp"

#include <algorithm>
#include <cassert>

#include "recency.hpp"
#include "tree.hpp"

namespace kvcanon {

namespace {

// Finds the longest usable prefix of a path, node by node: `spec.oracle.prefix.usable_prefix`.
class Usable {
  public:
    explicit Usable(const Config& config) : config_(config), covered_(config.window_tokens) {}

    // The next node of the path; `here` says whether data counts.
    template <typename Here>
    void add(const Stop& stop, Here here) {
        const Node* node = stop.node;
        ended_ = ended_ || !here(node->data[FULL]);
        if (ended_) return;
        if (config_.swa()) {
            const int64_t tokens = static_cast<int64_t>(stop.shared) * config_.page_size;
            covered_ = here(node->data[SWA]) ? covered_ + tokens : 0;
            if (covered_ < config_.window_tokens) return;
        }
        if (config_.mamba && !(stop.shared == node->pages && here(node->data[MAMBA]))) return;
        pages = node->start + stop.shared;
    }

    int32_t pages = 0;

  private:
    const Config& config_;
    int64_t covered_;
    bool ended_ = false;
};

// The transfers that fill device data above a page of a walked path, each once.
std::vector<uint64_t> pending_above(const State& state, const Path& path, int32_t end_pages) {
    std::vector<uint64_t> pending;
    if (state.transfers.empty()) return pending;
    for (const Stop& stop : path) {
        if (stop.node->start >= end_pages) break;
        for (const Component component : ALL_COMPONENTS) {
            const Transfer* filling = stop.node->data[component].filling[GPU];
            // A cut leaves a state with the lower node.
            if (component == MAMBA && stop.node->end() > end_pages) continue;
            if (filling != nullptr) pending.push_back(filling->transfer_id);
        }
    }
    std::sort(pending.begin(), pending.end());
    pending.erase(std::unique(pending.begin(), pending.end()), pending.end());
    return pending;
}

// The device slots above a page of a walked path where the device prefix ends.
SlotLists slots_above(const State& state, const Path& path, int32_t end_pages) {
    SlotLists slots;
    const auto pages_of = [&](const Stop& stop) {
        return std::min(stop.node->pages, end_pages - stop.node->start);
    };
    const auto add = [&](const Stop& stop, Component component) {
        const Runs& owned = stop.node->data[component].slots(GPU);
        const int32_t pages = pages_of(stop);
        if (pages == stop.node->pages) {
            slots[component].append(owned);
        } else {
            slots[component].append(RunReader(owned).next(pages));
        }
    };
    auto end = path.begin();
    for (; end != path.end() && end->node->start < end_pages; ++end) add(*end, FULL);
    if (end == path.begin()) return slots;
    if (state.config.swa()) {
        auto from = end;
        while (from != path.begin() && (from - 1)->node->data[SWA].resident(GPU)) --from;
        for (; from != end; ++from) add(*from, SWA);
    }
    const Stop& last = *(end - 1);
    if (last.node->end() == end_pages) slots[MAMBA] = last.node->data[MAMBA].slots(GPU);
    return slots;
}

}  // namespace

Matched match(State& state, const Key& key, bool with_slots) {
    const Path path = with_slots ? walk(state, key) : walk_for_use(state, key);
    Usable anywhere(state.config), device(state.config);
    for (const Stop& stop : path) {
        device.add(stop, [](const Data& data) { return data.resident(GPU); });
    }
    if (state.config.host_tier()) {
        for (const Stop& stop : path) {
            anywhere.add(stop, [](const Data& data) { return data.on(CPU) || data.resident(GPU); });
        }
    }
    Matched found;
    found.prefix_pages = state.config.host_tier() ? anywhere.pages : device.pages;
    found.device_pages = device.pages;
    found.walked_pages = walked_pages(path);
    found.last = path.empty() ? state.root : path.back().node;
    // Nothing has changed until the cut, and nothing needs memory after it.
    found.pending = pending_above(state, path, found.prefix_pages);
    if (with_slots) found.slots = slots_above(state, path, found.device_pages);
    Node* end = node_ending_at(state, path, found.prefix_pages);
    // The last node was cut where the key leaves it.
    if (found.walked_pages == end->end()) found.last = end;
    record_match(state, end, state.tick());
    found.end_handle = handle_of(end);
    found.serial = state.serial;
    found.end = found.device_end = end;
    while (found.device_end->end() > found.device_pages) {
        found.device_end = found.device_end->parent;
    }
    assert(found.device_pages <= found.prefix_pages && found.prefix_pages <= key.pages);
    assert(!with_slots || found.slots[FULL].slots() == found.device_pages);
    ++state.counters.matches;
    state.counters.asked_pages += static_cast<uint64_t>(key.pages);
    state.counters.matched_pages[GPU] += static_cast<uint64_t>(found.device_pages);
    state.counters.matched_pages[CPU] +=
        static_cast<uint64_t>(found.prefix_pages - found.device_pages);
    return found;
}

SlotLists device_slots(const State& state, const std::vector<Node*>& path, bool arriving) {
    SlotLists slots;
    if (path.empty()) return slots;
    for (const Node* node : path) slots[FULL].append(node->data[FULL].slots(GPU));
    if (state.config.swa()) {
        const auto here = [&](const Data& data) {
            return arriving ? data.on(GPU) : data.resident(GPU);
        };
        auto from = path.end();
        while (from != path.begin() && here((*(from - 1))->data[SWA])) --from;
        for (; from != path.end(); ++from) slots[SWA].append((*from)->data[SWA].slots(GPU));
    }
    slots[MAMBA] = path.back()->data[MAMBA].slots(GPU);
    return slots;
}

}  // namespace kvcanon
