// Locks: what a holder keeps from being evicted, and how it is given back.
//
// A hold covers full data from a node up to the root, window data from a page on, and the recurrent
// state at the node. Where the window begins the path is cut, so that exactly the window is held.
//
// What readers get wrong: a release is not a second walk that decides again what to release. It
// undoes what its hold says, whatever has been evicted, healed, loaded or cut in between.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Hold all of a cached key for a request; the number of the receipt. Throws: PrefixNotCached.
uint64_t lock(State& state, const Key& key);

// Release what a request's receipt still holds. Throws: ReceiptSpent.
void unlock(State& state, uint64_t receipt);

// Release window data and state; the full data stays held. Throws: ReceiptSpent.
void unlock_window(State& state, uint64_t receipt);

// The first page whose window data a hold on `end` covers; -1 without a window.
int64_t held_window_start(const State& state, const Node* end);

// The first page of the window that ends at `end_pages`.
int64_t window_start(const State& state, int64_t end_pages);

// Open a receipt on a node. Its address is good until the next receipt is opened or closed.
Hold& hold(State& state, Node* end, int64_t window_from);

// Undo what a hold still covers, and close its receipt.
void release_hold(State& state, uint64_t receipt);

}  // namespace kvcanon
