// Events: which pages were stored on a medium or removed from it.
//
// Emitting computes no hashes. An event refers to its pages, and their hashes are computed when the
// event is taken. Until then the event keeps the tokens of its pages, even after the pages left the
// tree.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Emit that each page of a node is now on a medium, first page first.
void emit_stored(State& state, const Node* node, Medium medium);

// Emit that each page of a node left a medium, last page first.
void emit_removed(State& state, const Node* node, Medium medium);

// Emit that all pages left all media.
void emit_cleared(State& state);

// Compute the hashes of all pages in pending events.
void hash_events(State& state);

// The events since the last call, with all page hashes. The caller must unpin their spans.
std::vector<Event> take_events(State& state);

}  // namespace kvcanon
