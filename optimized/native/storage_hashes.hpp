// The hashes by which storage below the host names pages.
//
// They are a second chain beside that of events: both hash a page after the one before, and they
// begin with other seeds where a prompt has a namespace. They are computed where a caller asks for
// them and kept in the span, so that a cache without storage has none. A node's pages need those
// above it, which are in the tree as long as the node is.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Compute the storage hashes down to the end of a node, as far as they are missing.
void hash_for_storage(State& state, const Node* end);

// The storage hash of a page of a node, counted from the node's first; it was computed.
const uint8_t* storage_hash(const Node* node, int32_t page);

}  // namespace kvcanon
