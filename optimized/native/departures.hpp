// Departures: how data leaves a medium, at once or when its copy to the host is done.
//
// Under write_back an eviction copies its victims to the host, all in one transfer, and waits for
// it once. Until it settles a victim's device slots belong to its departure, and not to its node,
// so that further victims are chosen as if it had left.
//
// If the transfer fails the victims leave all the same. A leaf that has no host copy then is
// removed, with the nodes below it on the host.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Free all data of a node on a medium, the full data last, and emit the removal.
void vacate(State& state, Node* node, Medium medium);

// Remove a node that is on the host only, with all its data.
void delete_from_host(State& state, Node* node);

// Remove a leaf that is on the device only, and (under write_back) the nodes below it on the host.
// None of them is locked: a lock on one would hold the leaf's full data, too.
void delete_leaf(State& state, Node* node);

// Let a node leave the device, or lose some components there, when all victims are copied and those
// before it have left.
void depart(State& state, Departures& departures, Node* node, const std::vector<Component>& leaving,
            bool whole);

// Copy all victims, wait for the copy, and let the victims leave in their order.
// Throws: SpecViolation where the copy is in flight after the wait.
void end_departures(State& state, Departures& departures);

// Give all victims their data back, after the engine raised, and give their copy up.
void undo_departures(State& state, Departures& departures);

}  // namespace kvcanon
