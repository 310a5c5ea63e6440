// Match: the longest usable prefix of a key.
//
// A match is not read-only. It makes the prefix most recently used, and cuts a node if the prefix
// ends inside it. It changes nothing else.
#pragma once

#include "slots.hpp"

namespace kvcanon {

struct Matched {
    int32_t prefix_pages = 0;
    int32_t device_pages = 0;
    SlotLists slots;
    std::vector<uint64_t> pending;
    // The node where the prefix ends, by its handle, and the cache that it is of. A cut leaves a
    // node's end where it is: while a node with this handle is there, so is the prefix.
    uint64_t end_handle = 0;
    uint64_t serial = 0;
    // That node, and the one where its part on the device ends; the root for no page.
    Node* end = nullptr;
    Node* device_end = nullptr;
    // Pages that the tree has of the key, usable or not, and the lowest node that has any.
    int32_t walked_pages = 0;
    Node* last = nullptr;
};

// Find the longest usable prefix, and make it most recently used.
Matched match(State& state, const Key& key, bool with_slots = true);

// The device slots along a path that are usable at its end; with `arriving`, also those that a
// load-back in flight fills.
SlotLists device_slots(const State& state, const std::vector<Node*>& path, bool arriving);

}  // namespace kvcanon
