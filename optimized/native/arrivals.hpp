// Arrivals: which copies have ended here, and which of them can settle.
//
// Ends come at any time. What is settled is a decision, which ranks must make alike: they settle
// only copies that have ended on all of them.
#pragma once

#include "state.hpp"

namespace kvcanon {

constexpr int BOTH_DIRECTIONS = -1;

// Take completions from the engine; returns the transfers that can settle: those of each direction
// that have ended, up to the first that has not, each with whether it succeeded.
Completions arrived(State& state);

// The same, of one direction or of both; where there are ranks, those that have ended on all of
// them, as failed if they failed on any.
Completions ends_of(State& state, int direction);

// Sort what a caller wants to settle by id. Throws: BadArgument where it cannot settle here.
void require_settleable(State& state, Completions& named);

}  // namespace kvcanon
