// Host insert: pages that were fetched from storage are placed on the host.
//
// Nodes that are on the device only are *refilled*: they get a host copy from the fetched bytes.
// Pages that are not in the tree become a new node, on the host only.
//
// Fetched pages behind a gap are useless. Where parents of a host copy need a host copy, too, all
// pages from the first gap on are dropped. A copy in flight counts as a gap, because it may still
// fail.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Which fetched payloads go into which host slots. The caller writes them at once.
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

// Find host slots for the fetched pages of `key` from page `start_pages` on. `payloads` counts the
// pages of each component, laid out as in `SlotLists`. Throws: BadArgument, PrefixNotCached.
HostInserted insert_host(State& state, const Key& key, int64_t start_pages, const Counts& payloads);

}  // namespace kvcanon
