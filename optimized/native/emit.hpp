// Events: what is said of which pages.
//
// What readers get wrong: to announce is not yet to name. An event refers to its pages, and their
// names are computed when it is taken. Until then it keeps the tokens that they are named by,
// though the pages may have left the tree.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Tell that each page of a node is now on a medium, in order.
void emit_stored(State& state, const Node* node, Medium medium);

// Tell that each page of a node is on a medium no more, the last page first.
void emit_removed(State& state, const Node* node, Medium medium);

// Tell that nothing is anywhere.
void emit_cleared(State& state);

// Name every page of the events that nobody has taken yet.
void hash_events(State& state);

// The events since the last call, with every page named. Their pins are the caller's now.
std::vector<Event> take_events(State& state);

}  // namespace kvcanon
