// The tier below the host: which pages are to be written to the store or fetched from there, and
// which count as being in it.
//
// An order outlives the nodes of its pages, so it has a span of its own, whose pages all have
// hashes. Each change of what counts is an event on the medium of the store.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Consecutive pages of a prompt, with their tokens and hashes.
struct PageRun {
    SpanRef span;
    // Pages of the prompt before the first.
    int32_t start = 0;

    int32_t pages() const { return span ? span->pages : 0; }
};

// What a write to the store takes: the pages on the host that follow those that are stored.
struct Unstored {
    PageRun run;
    Runs slots;
};

// Find the leading host pages of a key that follow those known to be in the store. An empty run
// still says where they would begin. Changes nothing.
Unstored unstored(State& state, const Key& key);

// Find the pages of a key that have to be fetched, as many as there are free host slots: those
// below which a host insert places nothing yet. Changes nothing.
PageRun unfetched(State& state, const Key& key);

// Pages `begin` to `end` of a run are in the store. Each counts if the page before it does.
void note_stored(State& state, const PageRun& run, int32_t begin, int32_t end);

// A page of a run is not in the store: it does not count any more, nor do those that follow it.
void note_missing(State& state, const PageRun& run, int32_t page);

// The stored pages in the order in which they came to count, as events that announce them.
std::vector<Event> stored_events(const State& state);

}  // namespace kvcanon
