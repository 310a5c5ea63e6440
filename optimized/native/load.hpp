// Load-back: data that a prefix has only on the host is copied to the device.
//
// Each pool is checked on its own. Full data is evicted only where full slots are short, never
// because the window pool is short (sgl#26302).
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
    // The device slots of the whole key once the load has settled; empty where nothing was
    // enqueued.
    SlotLists slots{};
};

// Enqueue the load of all data that a cached key has only on the host. A negative `quota_pages`
// means no quota. Throws: PrefixNotCached.
LoadedBack load_back(State& state, const Key& key, int64_t quota_pages);

}  // namespace kvcanon
