// Transfers: enqueueing a copy, and settling it when its end is known.
//
// A failed copy also affects copies in flight that build on it, further down in the same direction.
// They can no longer become part of a prefix: they are cancelled, and their slots come free when
// the engine completes them.
#pragma once

#include "arrivals.hpp"

namespace kvcanon {

// Enqueue the copy of nodes' data, root first, into free slots on the other medium; returns its id.
// The caller must have made sure of the free slots, and hands over the hold that the transfer
// keeps.
uint64_t enqueue(State& state, Direction direction, const std::vector<Part>& parts, Hold& held);

// Begin a transfer without parts, which keeps a hold; `submit` must follow.
Transfer& begin(State& state, Direction direction, Hold& held);

// Add the copies of nodes' data, into free slots, to a transfer that is not submitted yet.
void add_parts(State& state, Transfer& transfer, const std::vector<Part>& parts);

// Order a transfer from the engine.
void submit(State& state, const Transfer& transfer);

// Detach a copy from its nodes; it keeps its target slots until the engine completes it.
void cancel(State& state, Transfer& transfer);

using Settled = std::vector<std::pair<uint64_t, Status>>;

// Settle the transfers that have arrived, of one direction or of both; where ranks agree, those
// that have arrived on every rank, as failed if they failed on any.
Settled settle(State& state, int direction = BOTH_DIRECTIONS);

// Settle exactly these transfers. Throws: BadArgument where one has not arrived here.
Settled settle_these(State& state, Completions named);

// Wait for every transfer in flight, and settle it.
Settled flush(State& state);

}  // namespace kvcanon
