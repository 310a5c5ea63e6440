#include "emit.hpp"

#include <cassert>
#include <limits>

#include "tier.hpp"

namespace kvcanon {

namespace {

// Dropped events that are forgotten with each new one, so that no call pays for all of them.
constexpr size_t FORGOTTEN_AT_ONCE = 64;

void forget_dropped(State& state, size_t most) {
    std::vector<Event>& dropped = state.events.dropped;
    for (; most != 0 && !dropped.empty(); --most) {
        TokenSpan* span = dropped.back().span.get();
        if (span != nullptr) unpin(span, static_cast<size_t>(state.config.page_words));
        dropped.pop_back();
    }
    if (dropped.empty() && dropped.capacity() != 0) std::vector<Event>().swap(dropped);
}

// Stop recording: what waits is dropped.
void give_up(State& state) {
    PendingEvents& events = state.events;
    state.counters.dropped_events += static_cast<uint64_t>(events.pages);
    events.dropped.swap(events.log);
    events.pages = 0;
    events.given_up = true;
    ++events.edition;
}

// Whether events of so many pages may be added to the log.
bool has_room(State& state, int64_t pages) {
    state.changed = true;
    PendingEvents& events = state.events;
    forget_dropped(state, FORGOTTEN_AT_ONCE);
    if (!events.given_up && events.pages + pages > state.config.max_pending_events) give_up(state);
    if (events.given_up) state.counters.dropped_events += static_cast<uint64_t>(pages);
    return !events.given_up;
}

void emit(State& state, const Event& event) {
    if (!state.config.events) return;
    state.counters.events += static_cast<uint64_t>(event.pages);
    if (!has_room(state, event.pages)) return;
    state.events.log.push_back(event);
    state.events.pages += event.pages;
    assert(state.events.pages <= state.config.max_pending_events);
    pin(event.span.get());
}

Event event_of(EventKind kind, const Node* node, Medium medium) {
    return {kind, medium, node->span, node->offset, node->pages};
}

Event cleared() { return {EventKind::CLEARED, GPU, SpanRef(), 0, 0}; }

// The node after this one, each before those below it.
const Node* next_of(const Node* node) {
    if (node->first_child != nullptr) return node->first_child;
    while (node != nullptr && node->next == nullptr) node = node->parent;
    return node == nullptr ? nullptr : node->next;
}

// Events that describe the tree to somebody who knows nothing.
std::vector<Event> all_resident(const State& state) {
    std::vector<Event> events{cleared()};
    for (const Node* node = next_of(state.root); node != nullptr; node = next_of(node)) {
        for (const Medium medium : {GPU, CPU}) {
            if (!node->data[FULL].resident(medium)) continue;
            events.push_back(event_of(EventKind::STORED, node, medium));
        }
    }
    for (const Event& event : stored_events(state)) events.push_back(event);
    return events;
}

}  // namespace

void emit_stored(State& state, const Node* node, Medium medium) {
    assert(node->data[FULL].resident(medium));
    emit(state, event_of(EventKind::STORED, node, medium));
}

void emit_removed(State& state, const Node* node, Medium medium) {
    assert(node->data[FULL].resident(medium));
    emit(state, event_of(EventKind::REMOVED, node, medium));
}

void emit_in_store(State& state, const Event& event) {
    assert(event.span->hashed() >= event.offset + event.pages);
    emit(state, event);
}

void emit_cleared(State& state) {
    if (!state.config.events) return;
    ++state.counters.events;
    if (!has_room(state, 1)) {
        // Nothing before this event matters, so recording begins again with it.
        --state.counters.dropped_events;
        state.events.given_up = false;
    }
    state.events.log.push_back(cleared());
    ++state.events.pages;
}

std::vector<Event> pending_events(State& state) {
    std::vector<Event> events = state.events.given_up ? all_resident(state) : state.events.log;
    std::vector<HashRequest> unhashed;
    for (const Event& event : events) {
        const int32_t end = event.offset + event.pages;
        TokenSpan* span = event.span.get();
        if (span == nullptr || span->hashed() >= end) continue;
        const Namespaces::Entry& owner = state.namespaces->at(span->namespace_id);
        unhashed.push_back({span, end, owner.seed, owner.seed_bytes});
    }
    hash_spans(unhashed, static_cast<size_t>(state.config.page_words));
    return events;
}

void forget_events(State& state) {
    state.changed = true;
    // Earlier dropped events are few or none, and these are no more than were just taken.
    forget_dropped(state, std::numeric_limits<size_t>::max());
    state.events.dropped.swap(state.events.log);
    forget_dropped(state, std::numeric_limits<size_t>::max());
    state.events.pages = 0;
    state.events.given_up = false;
    ++state.events.edition;
}

}  // namespace kvcanon
