// Load back: what a prefix has on the host only is copied to the device.
//
// What readers get wrong: each pool is short or not on its own. Full pages are evicted only where
// full slots are missing; that the window pool is short is no reason (sgl#26302).
#pragma once

#include "slots.hpp"

namespace kvcanon {

enum class LoadDecision : int {
    ENQUEUED,
    NOTHING_TO_LOAD,
    BELOW_THRESHOLD,
    OVER_QUOTA,
    NO_ROOM,
};

struct LoadedBack {
    LoadDecision decision;
    // 0 where none was enqueued.
    uint64_t transfer_id = 0;
    Counts loading;
    Counts evicted;
    // Where all data of the key is, or will be once the load has settled; none where none was
    // enqueued.
    SlotLists slots{};
};

// Enqueue the load of what a cached key has on the host only; `quota_pages` is negative where there
// is none. Throws: PrefixNotCached.
LoadedBack load_back(State& state, const Key& key, int64_t quota_pages);

}  // namespace kvcanon
