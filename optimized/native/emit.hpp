// Events: which pages were stored on a medium or removed from it.
//
// Emitting computes no hashes. An event refers to its pages, and their hashes are computed when the
// event is taken. Until then the event keeps the tokens of its pages, even after the pages left the
// tree.
//
// At most `Config::max_pending_events` events of single pages wait. When one more is emitted the
// log is given up: nothing more is recorded, and the next events that are taken describe the tree
// as it is then, all pages cleared and then a store of each that is resident. So a router that
// missed what was given up is right again.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Emit that each page of a node is now on a medium, first page first.
void emit_stored(State& state, const Node* node, Medium medium);

// Emit that each page of a node left a medium, last page first.
void emit_removed(State& state, const Node* node, Medium medium);

// Emit that all pages left all media. What waited is of no use any more where the log is full.
void emit_cleared(State& state);

// Emit that pages are now in the store below the host, or are not there any more. The span has
// their hashes.
void emit_in_store(State& state, const Event& event);

// The events that wait, with all page hashes: the log, or all that is resident.
std::vector<Event> pending_events(State& state);

// Forget the events that wait; they were taken.
void forget_events(State& state);

}  // namespace kvcanon
