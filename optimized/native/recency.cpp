#include "recency.hpp"

#include <algorithm>

#include "victims.hpp"

namespace kvcanon {

namespace {

// Whether every node of a path is told of a use, and not its end alone.
bool tells_all(const State& state) { return state.config.host_tier(); }

// The queues rank a node by what is written here.
void touch(State& state, Node* end, uint64_t tick) {
    if (state.config.mamba) end->data[MAMBA].used = tick;
    const int64_t seen_tokens = state.config.window_tokens + state.config.page_size;
    int64_t below_tokens = 0;
    for (Node* node = end; node->parent != nullptr; node = node->parent) {
        const bool in_window = state.config.swa() && below_tokens < seen_tokens;
        if (node != end && !in_window && !tells_all(state)) return;
        node->last_access = tick;
        if (in_window) {
            node->data[SWA].used = tick;
            below_tokens += static_cast<int64_t>(node->pages) * state.config.page_size;
        }
        requeue(state, node);
    }
}

// Count a hit of every node that ends after `counted_pages`.
void count_hit(const State& state, Node* end, int64_t counted_pages) {
    if (tells_all(state)) {
        for (Node* node = end; node->parent != nullptr; node = node->parent) {
            if (node->end() > counted_pages) ++node->hit_count;
        }
        return;
    }
    if (end->end() <= counted_pages) return;
    ++end->hit_count;
    // The nodes above that are not counted: the lowest of them takes the hit away again.
    if (counted_pages == 0) return;
    Node* above = end->parent;
    while (above->end() > counted_pages) above = above->parent;
    if (above->parent != nullptr) --above->hit_count;
}

void raise_priority(const State& state, Node* end, int64_t priority) {
    for (Node* node = end; node->parent != nullptr; node = node->parent) {
        node->priority = std::max(node->priority, priority);
        if (!tells_all(state)) return;
    }
}

}  // namespace

void record_match(State& state, Node* end, uint64_t tick) { touch(state, end, tick); }

void record_insert(State& state, Node* end, uint64_t tick, int64_t counted_pages,
                   int64_t priority) {
    if (end->parent != nullptr) {
        count_hit(state, end, counted_pages);
        raise_priority(state, end, priority);
    }
    touch(state, end, tick);
}

void inherit(const State& state, Node* parent, const Node* leaf) {
    if (tells_all(state) || parent->parent == nullptr) return;
    parent->last_access = std::max(parent->last_access, leaf->last_access);
    parent->priority = std::max(parent->priority, leaf->priority);
    parent->hit_count += leaf->hit_count;
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
