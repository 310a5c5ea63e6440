// Insert: a request hands over what it computed.
//
// Along the part of the key that is in the tree already, incoming slots are duplicates and are
// freed, unless a node lacks them: then it takes them. The rest of the key becomes a new leaf.
//
// What readers get wrong: the tree and the request may disagree about what is cached, in both
// directions. A node may have lost window data that the request still has (it is healed), and the
// request may have let window data go that the node still has (nothing happens).
#pragma once

#include "slots.hpp"

namespace kvcanon {

struct Inserted {
    int32_t present_pages = 0;
    Counts adopted;
    Counts freed;
    std::vector<uint64_t> backups;
    int64_t backup_declined_pages = 0;
};

// Take over the slots of `key` from page `start_pages` on.
// Throws: BadArgument, SlotNotHeld, PrefixNotCached, TransferPending.
Inserted insert(State& state, const Key& key, int64_t start_pages, const SlotLists& slots,
                int64_t counted_pages, int64_t priority);

}  // namespace kvcanon
