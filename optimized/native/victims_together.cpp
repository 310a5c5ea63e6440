#include "victims_together.hpp"

#include <algorithm>

#include "backup.hpp"
#include "victims.hpp"

namespace kvcanon {

namespace {

// Each is compared with all before it, and with those that would make room for them.
constexpr size_t MOST_TOGETHER = 16;

// Whether the first nodes of a queue have so many host slots of a component, each of them as `may`
// says.
template <typename May>
bool first_have(const State& state, Queue queue, Component component, int64_t slots, May may) {
    bool all_may = true;
    visit_in_order(state, queue, [&](const Node* node, const Candidate& key) {
        if (slots <= 0) return false;
        all_may = may(node, key);
        slots -= node->data[component].slots(CPU).slots();
        return all_may;
    });
    return all_may && slots <= 0;
}

// Whether room on the host is made by nodes that would leave it also if these had left the device.
bool others_make_room(const State& state, Component component, int64_t slots,
                      const std::vector<Node*>& leaving) {
    if (component == FULL && !state.queue(Queue::INNER_DUPLICATES).empty()) {
        const auto is_apart = [&](const Node* node, const Candidate&) {
            return std::none_of(leaving.begin(), leaving.end(), [&](const Node* each) {
                return each == node || each->parent == node;
            });
        };
        // Where they are too few, it depends on who has become a leaf. Without any, nobody who has
        // a copy becomes one; those of leaves go first then, and make more room than is asked here.
        return first_have(state, Queue::INNER_DUPLICATES, component, slots, is_apart);
    }
    const Queue queue = queue_of(component, CPU);
    Candidate first = key_of(state, leaving.front(), queue);
    for (const Node* each : leaving) first = std::min(first, key_of(state, each, queue), precedes);
    return first_have(state, queue, component, slots,
                      [&](const Node*, const Candidate& key) { return precedes(key, first); });
}

}  // namespace

Together victims_together(const State& state, Component component, int64_t enough) {
    Together found;
    int64_t slots = 0;
    bool is_one_unbacked = false;
    visit_in_order(state, queue_of(component, GPU), [&](Node* node, const Candidate&) {
        const Counts lacks = counted(missing(state, node), GPU);
        if (!lacks) return false;
        const bool is_backed = node->data[FULL].on(CPU);
        // Room for full data may cost it the copy that it has.
        if (is_one_unbacked && is_backed) return false;
        Counts all = found.lacks;
        for (const Component each : ALL_COMPONENTS) {
            all[each] += lacks[each];
            const int64_t short_of = all[each] - state.free_slots(each, CPU);
            if (found.nodes.empty() || short_of <= 0) continue;
            if (!others_make_room(state, each, short_of, found.nodes)) return false;
        }
        found.nodes.push_back(node);
        found.lacks = all;
        is_one_unbacked = is_one_unbacked || !is_backed;
        slots += node->data[component].slots(GPU).slots();
        return slots < enough && found.nodes.size() < MOST_TOGETHER;
    });
    return found;
}

}  // namespace kvcanon
