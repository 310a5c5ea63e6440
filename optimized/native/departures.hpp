// Departures: how data leaves a medium, at once or when its copy to the host is done.
//
// Under write_back an eviction copies its victims to the host. It enqueues the copies of all
// victims before it waits for any of them. Until the copies settle a victim's device slots belong
// to its departure, and not to its node, so that further victims are chosen as if it had left.
//
// A victim whose copy fails leaves all the same. A leaf without a host copy is removed, with the
// nodes below it on the host.
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

// Let a node leave the device, or lose some components there, when a copy is done and all victims
// before it have left. `transfer_id` is 0 where nothing is copied.
void depart(State& state, Node* node, const std::vector<Component>& leaving, uint64_t transfer_id,
            bool whole);

// Wait for the copies of all victims, once, and let the victims leave in their order.
// Throws: SpecViolation where a copy is in flight after the wait.
void end_departures(State& state);

// Give all victims their data back, after the engine raised. Copies of victims that are still in
// flight hold their nodes from now on, as other copies do.
void undo_departures(State& state);

}  // namespace kvcanon
