// Transfers: enqueueing a copy, and settling it when its end is known.
//
// What readers get wrong: a failed copy does not only concern its own nodes. Copies in flight that
// build on it, further down in the same direction, can no longer become part of a prefix: they are
// cancelled, and their slots wait for the engine to let go of them.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Enqueue the copy of what nodes have, root first, into free slots on the other medium; returns its
// id. The caller has made sure of the room, and hands over the hold that the transfer keeps.
uint64_t enqueue(State& state, Direction direction, std::vector<Part> parts, Hold& held);

using Settled = std::vector<std::pair<uint64_t, Status>>;

constexpr int BOTH_DIRECTIONS = -1;

// Take acknowledgements, and settle one direction or both as far as they come in order.
Settled settle(State& state, int direction = BOTH_DIRECTIONS);

// Wait for every transfer in flight, and settle it.
Settled flush(State& state);

}  // namespace kvcanon
