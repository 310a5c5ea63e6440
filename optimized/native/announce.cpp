#include "announce.hpp"

namespace kvcanon {

namespace {

Naming naming(const State& state, Stretch* stretch, int32_t pages) {
    const Namespace& space = state.spaces[stretch->space];
    return {stretch, pages, space.seed, space.seed_bytes};
}

void announce(State& state, EventKind kind, const Node* node, Medium medium) {
    state.events.push_back({kind, medium, node->stretch, node->offset, node->pages});
    pin(node->stretch.get());
    state.counters.events += static_cast<uint64_t>(node->pages);
}

}  // namespace

void announce_stored(State& state, const Node* node, Medium medium) {
    if (state.config.events) announce(state, EventKind::STORED, node, medium);
}

void announce_removed(State& state, const Node* node, Medium medium) {
    if (state.config.events) announce(state, EventKind::REMOVED, node, medium);
}

void announce_cleared(State& state) {
    if (!state.config.events) return;
    state.events.push_back({EventKind::CLEARED, GPU, StretchRef(), 0, 0});
    ++state.counters.events;
}

void name_events(State& state) {
    std::vector<Naming> unnamed;
    for (const Event& event : state.events) {
        const int32_t end = event.offset + event.pages;
        if (event.stretch && event.stretch->named < end) {
            unnamed.push_back(naming(state, event.stretch.get(), end));
        }
    }
    name_pages(std::move(unnamed), static_cast<size_t>(state.config.page_words));
}

std::vector<Event> take_events(State& state) {
    name_events(state);
    return std::exchange(state.events, {});
}

}  // namespace kvcanon
