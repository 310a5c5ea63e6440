#include "announce.hpp"

namespace kvcanon {

namespace {

void name(State& state, const StretchRef& stretch, int32_t pages) {
    const Namespace& space = state.spaces[stretch->space];
    name_pages(stretch.get(), pages, static_cast<size_t>(state.config.page_words), space.seed,
               space.seed_bytes);
}

void announce(State& state, EventKind kind, const Node* node, Medium medium) {
    pin(node->stretch.get());
    state.events.push_back({kind, medium, node->stretch, node->offset, node->pages});
    state.counters.events += static_cast<uint64_t>(node->pages);
}

}  // namespace

void announce_stored(State& state, const Node* node, Medium medium) {
    if (state.config.events) announce(state, EventKind::STORED, node, medium);
}

void announce_removed(State& state, const Node* node, Medium medium) {
    if (!state.config.events) return;
    name(state, node->stretch, node->offset + node->pages);
    announce(state, EventKind::REMOVED, node, medium);
}

void announce_cleared(State& state) {
    if (!state.config.events) return;
    state.events.push_back({EventKind::CLEARED, GPU, StretchRef(), 0, 0});
    ++state.counters.events;
}

std::vector<Event> take_events(State& state) {
    std::vector<Event> events;
    events.swap(state.events);
    for (const Event& event : events) {
        if (event.stretch) name(state, event.stretch, event.offset + event.pages);
    }
    return events;
}

}  // namespace kvcanon
