// Host insert: pages that were fetched from storage find their place on the host.
//
// Nodes that are on the device only are *refilled*: they get a host copy from the fetched bytes.
// What is not in the tree becomes a new node, on the host only.
//
// What readers get wrong: fetched pages are worth nothing behind a gap. Where the parents of a host
// copy must have one too, everything from the first page without one on is dropped; and a copy that
// is still in flight counts as a gap, because it may yet fail.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Which fetched payloads go into which host slots: the caller writes them there at once.
struct Placement {
    Component component;
    // Index of the first payload.
    int64_t first;
    Runs slots;
};

struct HostInserted {
    int64_t placed_pages = 0;
    int64_t refilled_pages = 0;
    int64_t present_pages = 0;
    int64_t dropped_pages = 0;
    std::vector<Placement> placements;
};

// Find a place for the fetched pages of `key` from page `start_pages` on; `payloads` says how many
// there are of each component, laid out as in `SlotLists`. Throws: BadArgument, PrefixNotCached.
HostInserted insert_host(State& state, const Key& key, int64_t start_pages, const Counts& payloads);

}  // namespace kvcanon
