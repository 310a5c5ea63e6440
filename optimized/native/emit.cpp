#include "emit.hpp"

namespace kvcanon {

namespace {

HashRequest request_for(const State& state, TokenSpan* span, int32_t pages) {
    const Namespace& owner = state.namespaces[span->namespace_id];
    return {span, pages, owner.seed, owner.seed_bytes};
}

void emit(State& state, EventKind kind, const Node* node, Medium medium) {
    state.events.push_back({kind, medium, node->span, node->offset, node->pages});
    pin(node->span.get());
    state.counters.events += static_cast<uint64_t>(node->pages);
}

}  // namespace

void emit_stored(State& state, const Node* node, Medium medium) {
    if (state.config.events) emit(state, EventKind::STORED, node, medium);
}

void emit_removed(State& state, const Node* node, Medium medium) {
    if (state.config.events) emit(state, EventKind::REMOVED, node, medium);
}

void emit_cleared(State& state) {
    if (!state.config.events) return;
    state.events.push_back({EventKind::CLEARED, GPU, SpanRef(), 0, 0});
    ++state.counters.events;
}

void hash_events(State& state) {
    std::vector<HashRequest> unhashed;
    for (const Event& event : state.events) {
        const int32_t end = event.offset + event.pages;
        if (event.span && event.span->hashed < end) {
            unhashed.push_back(request_for(state, event.span.get(), end));
        }
    }
    hash_spans(unhashed, static_cast<size_t>(state.config.page_words));
}

std::vector<Event> take_events(State& state) {
    hash_events(state);
    return std::exchange(state.events, {});
}

}  // namespace kvcanon
