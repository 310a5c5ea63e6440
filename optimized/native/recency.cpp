#include "recency.hpp"

#include <algorithm>

#include "victims.hpp"

namespace kvcanon {

namespace {

// Whether every node of a path is told of a use, and not its end alone.
bool tells_all(const State& state) { return state.config.host_tier(); }

// What an insert tells of a use besides its time.
struct Told {
    int64_t counted_pages = 0;
    int64_t priority = 0;
};

// Write a use to the nodes of a path that are told of it; `told` is null for a match.
void touch(State& state, Node* end, uint64_t tick, const Told* told) {
    const int64_t seen_tokens = state.config.window_tokens + state.config.page_size;
    int64_t below_tokens = 0;
    for (Node* node = end; node->parent != nullptr; node = node->parent) {
        const bool in_window = state.config.swa() && below_tokens < seen_tokens;
        const bool is_told = node == end || tells_all(state);
        if (!is_told && !in_window) return;
        update(state, node, [&](QueuedWriter its) {
            its[&Node::last_access] = tick;
            if (in_window) its.of(SWA, &Data::used) = tick;
            if (node == end && state.config.mamba) its.of(MAMBA, &Data::used) = tick;
            if (told == nullptr || !is_told) return;
            if (node->end() > told->counted_pages) ++its[&Node::hit_count];
            its[&Node::priority] = std::max(node->priority.get(), told->priority);
        });
        if (in_window) below_tokens += static_cast<int64_t>(node->pages) * state.config.page_size;
    }
}

// Where the end alone is told of a hit, the lowest node above that was counted before takes it away
// again.
void take_hit_away(State& state, Node* end, int64_t counted_pages) {
    if (tells_all(state) || end->end() <= counted_pages || counted_pages == 0) return;
    Node* above = end->parent;
    while (above->end() > counted_pages) above = above->parent;
    if (above->parent == nullptr) return;
    update(state, above, [](QueuedWriter its) { --its[&Node::hit_count]; });
}

}  // namespace

void record_match(State& state, Node* end, uint64_t tick) { touch(state, end, tick, nullptr); }

void record_insert(State& state, Node* end, uint64_t tick, int64_t counted_pages,
                   int64_t priority) {
    if (end->parent == nullptr) return;
    const Told told{counted_pages, priority};
    take_hit_away(state, end, counted_pages);
    touch(state, end, tick, &told);
}

void record_first_use(State& state, Node* node, Component component, uint64_t tick) {
    update(state, node, [&](QueuedWriter its) { its.of(component, &Data::used) = tick; });
}

void inherit(State& state, Node* parent, const Node* leaf) {
    if (tells_all(state) || parent->parent == nullptr) return;
    update(state, parent, [&](QueuedWriter its) {
        its[&Node::last_access] = std::max(parent->last_access.get(), leaf->last_access.get());
        its[&Node::priority] = std::max(parent->priority.get(), leaf->priority.get());
        its[&Node::hit_count] += leaf->hit_count;
    });
}

std::vector<Uses> uses_of(const State& state, const std::vector<Node*>& nodes) {
    std::vector<Uses> uses(state.arena.size());
    for (const Node* node : nodes) {
        uses[node->index] = {node->last_access, node->hit_count, node->priority};
    }
    if (tells_all(state)) return uses;
    for (auto each = nodes.rbegin(); each != nodes.rend(); ++each) {
        const Node* parent = (*each)->parent;
        if (parent == nullptr || parent->parent == nullptr) continue;
        const Uses& own = uses[(*each)->index];
        Uses& above = uses[parent->index];
        above.last_access = std::max(above.last_access, own.last_access);
        above.priority = std::max(above.priority, own.priority);
        above.hit_count += own.hit_count;
    }
    return uses;
}

}  // namespace kvcanon
