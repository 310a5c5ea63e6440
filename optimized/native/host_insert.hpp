// Host insert: pages that were fetched from storage are placed on the host.
//
// Nodes that are on the device only are *refilled*: they get a host copy from the fetched bytes.
// Pages that are not in the tree become a new node, on the host only.
//
// Fetched pages behind a gap are useless. Where parents of a host copy need a host copy, too, all
// pages from the first gap on are dropped. A copy in flight counts as a gap, because it may still
// fail.
//
// A client that writes host memory itself reserves slots first, fills them, and commits them. A
// commit is a host insert with the client's slots: it evicts nothing and copies nothing.
#pragma once

#include "slots.hpp"

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

// Place host slots that a client reserved and filled, laid out as in `SlotLists`. Slots of pages
// that are not needed come free. Throws: BadArgument, PrefixNotCached, SlotNotHeld.
HostInserted commit_host(State& state, const Key& key, int64_t start_pages, const SlotLists& slots);

// The host slots of a prefix whose copies have settled.
struct HostSlots {
    int32_t pages = 0;
    // Window data of the last pages, as far back as there is some; the state at the end.
    SlotLists slots;
};

// Find the host slots of a key, as far as settled copies reach from its first page. Changes
// nothing.
HostSlots host_slots(State& state, const Key& key);

}  // namespace kvcanon
