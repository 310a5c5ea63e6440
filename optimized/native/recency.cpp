#include "recency.hpp"

#include <algorithm>

#include "victims.hpp"

namespace kvcanon {

namespace {

void touch(const State& state, Node* end, uint64_t tick) {
    const int64_t seen_tokens = state.config.window_tokens + state.config.page_size;
    int64_t below_tokens = 0;
    for (Node* node = end; node->parent != nullptr; node = node->parent) {
        node->last_access = tick;
        if (state.config.swa() && below_tokens < seen_tokens) {
            node->data[SWA].used = tick;
            below_tokens += static_cast<int64_t>(node->pages) * state.config.page_size;
        }
    }
    if (state.config.mamba) end->data[MAMBA].used = tick;
}

void count_hits(Node* end, int64_t counted_pages, int64_t priority) {
    for (Node* node = end; node->parent != nullptr; node = node->parent) {
        node->priority = std::max(node->priority, priority);
        if (node->end() > counted_pages) ++node->hit_count;
    }
}

// The queues rank a node by all of this.
void requeue_path(State& state, Node* end) {
    for (Node* node = end; node->parent != nullptr; node = node->parent) requeue(state, node);
}

}  // namespace

void record_match(State& state, Node* end, uint64_t tick) {
    touch(state, end, tick);
    requeue_path(state, end);
}

void record_insert(State& state, Node* end, uint64_t tick, int64_t counted_pages,
                   int64_t priority) {
    touch(state, end, tick);
    count_hits(end, counted_pages, priority);
    requeue_path(state, end);
}

}  // namespace kvcanon
