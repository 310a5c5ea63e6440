// Holds of host copies, for a caller that copies: it loads them, writes them to storage, or is
// about to add pages below them.
//
// A hold covers a node and those above that have data of its last window: their full and window
// data does not leave the host, nor does the node's own state, and none of them leaves the tree.
// The device may lose what it has of them, and the host the states above.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Open a hold on a node; returns its receipt.
uint64_t hold_on_host(State& state, Node* node);

// Close the hold of a receipt that was given for this node. Throws: ReceiptSpent, BadArgument.
void release_on_host(State& state, const Node* node, uint64_t receipt);

// Hold a node alone, and let it go, within one call.
void keep_on_host(State& state, Node* node);
void let_leave_host(State& state, Node* node);

// Whether a hold covers a node or one below it.
bool is_any_held(const Node* node);

}  // namespace kvcanon
