// Eviction from the device and from the host.
//
// For full slots, a whole leaf leaves the device; window data and mamba states can also leave inner
// nodes. A leaf with a host copy is demoted: it stays in the tree, on the host. A leaf without one
// is deleted, or under write_back copied first. All victims are copied in one transfer, for which
// the eviction waits once. On the host, only a node that is on no other medium and has no children
// is a leaf.
//
// A leaf loses all its data together. An inner node loses only the component that is short, and the
// data that is useless without it. Window data that leaves an inner node makes a tombstone and
// emits no event.
//
// Under write_back an eviction goes like this. `evict` takes victims one by one: `back_up_victim`
// adds what each lacks on the host to one copy, and `depart` takes its device slots away, so that
// the next victim is chosen as if it had left. `end_departures` submits the copy, waits for it, and
// lets all victims leave in their order. It comes once, at the end of the eviction; earlier only if
// the host is full of departing victims, or if a leaf is deleted that may have some below it. If
// the engine raises, `undo_departures` gives every victim its slots back.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Free device slots; returns how many came free of each component, including those that came free
// with another component.
Counts evict(State& state, const Counts& counts);

// Free host slots; returns how many came free. In the middle of an eviction from the device it lets
// that one's victims leave where the host is full of them.
Counts evict_host(State& state, const Counts& counts, Departures* departures = nullptr);

// Evict until `needed` host slots are free; returns whether they are. Stops at the first pool that
// stays short, since evictions from the others would be in vain.
bool free_host_slots(State& state, const Counts& needed, Departures* departures = nullptr);

// Check the counts of a call. Throws: BadArgument.
void check_counts(const Counts& counts);

}  // namespace kvcanon
