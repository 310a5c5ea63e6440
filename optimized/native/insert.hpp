// Insert: a request hands the slots that it computed over to the tree.
//
// Where the key is in the tree already, incoming slots are duplicates and are freed, unless a node
// lacks that data: then the node takes them. The rest of the key becomes a new leaf.
//
// The tree and the request may disagree about window data. If the node lost it and the request has
// it, the node is healed; if the request freed it and the node has it, nothing happens.
//
// A mamba state is at the end of a node, so the path is cut where a state of the insert ends.
#pragma once

#include "slots.hpp"

namespace kvcanon {

struct Inserted {
    int32_t present_pages = 0;
    Counts adopted;
    Counts freed;
    std::vector<uint64_t> backups;
    int64_t backup_declined_pages = 0;
    // Where the end of the key is.
    Node* end = nullptr;
    // Where the caller copies: the nodes to copy, in their order.
    std::vector<Node*> wanted;
};

// How many pages are before the end of each mamba state, ascending; none for the one state at the
// end of the key.
using StatePages = std::vector<int64_t>;

// Take over the slots of `key` from page `start_pages` on.
// Throws: BadArgument, SlotNotHeld, PrefixNotCached, TransferPending.
Inserted insert(State& state, const Key& key, int64_t start_pages, const SlotLists& slots,
                int64_t counted_pages, int64_t priority, const StatePages& state_pages = {});

// The same along the path that `walk` found for this key.
Inserted insert_along(State& state, const Key& key, const Path& path, int64_t start_pages,
                      const SlotLists& slots, int64_t counted_pages, int64_t priority,
                      const StatePages& state_pages = {});

}  // namespace kvcanon
