// Locks: which data a holder protects from eviction, and how the protection ends.
//
// A hold covers full data from a node up to the root, window data from one page on, and the mamba
// state of the node. The path is cut where the window begins, so that exactly the window is held.
//
// A release does not decide again what to release. It undoes what the hold recorded, even if nodes
// were evicted, healed, loaded or cut since.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Hold all of a cached key for a request; returns the receipt. Throws: PrefixNotCached.
uint64_t lock(State& state, const Key& key);

// Release what a request's receipt still holds. Throws: ReceiptSpent.
void unlock(State& state, uint64_t receipt);

// Release the window data and the mamba state; the full data stays held. Throws: ReceiptSpent.
void unlock_window(State& state, uint64_t receipt);

// The first page whose window data a hold on `end` covers; -1 without a window.
int64_t held_window_start(const State& state, const Node* end);

// The first page of the window that ends at `end_pages`.
int64_t window_start(const State& state, int64_t end_pages);

// Open a receipt on a node. Its address is good until the receipt is closed.
Hold& hold(State& state, Node* end, int64_t window_from);

// Release the mamba state alone. Throws: ReceiptSpent.
void release_state(State& state, uint64_t receipt);

// The hold of a client's receipt. Throws: ReceiptSpent.
Hold& open_hold(State& state, uint64_t receipt);

// Undo what a hold still covers, and close its receipt.
void release_hold(State& state, uint64_t receipt);

}  // namespace kvcanon
