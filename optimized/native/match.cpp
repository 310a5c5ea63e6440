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

}  // namespace

Matched match(State& state, const Key& key, bool with_slots) {
    const Path& path = walk(state, key);
    Usable anywhere(state.config), device(state.config);
    for (const Stop& stop : path) {
        anywhere.add(stop, [](const Data& data) { return data.on(CPU) || data.resident(GPU); });
        device.add(stop, [](const Data& data) { return data.resident(GPU); });
    }
    Matched found;
    found.prefix_pages = anywhere.pages;
    found.device_pages = device.pages;
    found.walked_pages = walked_pages(path);
    found.last = path.empty() ? state.root : path.back().node;
    Node* end = node_ending_at(state, path, found.prefix_pages);
    // The last node was cut where the key leaves it.
    if (found.walked_pages == end->end()) found.last = end;
    record_match(state, end, state.tick());
    found.end_handle = handle_of(end);
    found.serial = state.serial;
    std::vector<Node*> on_device = path_to(end);
    for (const Node* node : on_device) {
        for (const Component component : ALL_COMPONENTS) {
            const Transfer* filling = node->data[component].filling[GPU];
            if (filling != nullptr) found.pending.push_back(filling->transfer_id);
        }
    }
    std::sort(found.pending.begin(), found.pending.end());
    found.pending.erase(std::unique(found.pending.begin(), found.pending.end()),
                        found.pending.end());
    while (!on_device.empty() && on_device.back()->end() > found.device_pages) {
        on_device.pop_back();
    }
    found.end = end;
    found.device_end = on_device.empty() ? state.root : on_device.back();
    if (with_slots) found.slots = device_slots(state, on_device, false);
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
    for (const Node* node : path) slots[FULL].append(node->data[FULL].slots[GPU]);
    if (state.config.swa()) {
        const auto here = [&](const Data& data) {
            return arriving ? data.on(GPU) : data.resident(GPU);
        };
        auto from = path.end();
        while (from != path.begin() && here((*(from - 1))->data[SWA])) --from;
        for (; from != path.end(); ++from) slots[SWA].append((*from)->data[SWA].slots[GPU]);
    }
    slots[MAMBA] = path.back()->data[MAMBA].slots[GPU];
    return slots;
}

}  // namespace kvcanon
