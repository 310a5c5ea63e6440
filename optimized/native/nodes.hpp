// Nodes by handle: the cache for a caller that keeps the tables of slots, and the copies, itself.
//
// An engine that has its own allocator and its own copies asks the tree where a prompt is, and
// what leaves. Here it does so by node: a handle is a number that no other node of the cache ever
// has, and a cut leaves the handle to the lower part. So a prompt is walked only in `match` and
// `insert`; locks, slots, copies and evictions then name its end.
//
// Slots are rows: numbers that the tree takes for pages that it adopts, and that the caller uses as
// indexes into tables of its own addresses. The caller learns which rows were given and came free.
//
// A lock holds whole nodes: it never cuts, so that it needs no answer but its receipt.
#pragma once

#include <functional>

#include "insert.hpp"
#include "match.hpp"
#include "state.hpp"

namespace kvcanon {

// Collects what a call does while it lives.
class Journaled {
  public:
    explicit Journaled(State& state) : state_(state) { state_.journal = &journal; }
    Journaled(const Journaled&) = delete;
    Journaled& operator=(const Journaled&) = delete;
    ~Journaled() { state_.journal = nullptr; }

    Journal journal;

  private:
    State& state_;
};

// The node of a handle. Throws: BadArgument where it is gone, or never was.
Node* node_at(const State& state, uint64_t handle);

// A range of pages of a key.
struct Pages {
    int32_t begin = 0, end = 0;
};

struct NodeMatched {
    int32_t prefix_pages = 0;
    int32_t device_pages = 0;
    int32_t walked_pages = 0;
    uint64_t end = 0, device_end = 0, last = 0;
    // What the prefix has on the host alone and a load brings: full pages, window pages of its last
    // window, and its state.
    Counts host_only;
    std::vector<NodeCut> cuts;
};

// Find the longest usable prefix, as `match` does.
NodeMatched match_nodes(State& state, const Key& key);

struct NodeLocked {
    uint64_t receipt = 0;
    // Full slots on the device that were evictable before.
    int64_t protected_slots = 0;
    // Whether a window is held, and begins below the first page.
    bool window_below_root = false;
};

// Hold a node: full data up to the root, the nodes of the last window, its state. With the window
// also those of nodes above it, and all window data below them.
NodeLocked lock_node(State& state, Node* node, bool window, bool mamba,
                     const std::vector<Node*>& windows_of);

// The hold of a receipt that was given for this node. Throws: ReceiptSpent, BadArgument.
Hold& hold_of(State& state, Node* node, uint64_t receipt);

// The slots of a component from below `above` down to `end`, the first page first.
// Throws: BadArgument where `above` is not above `end`, or a node lacks them.
Runs slots_between(const Node* end, const Node* above, Component component, Medium medium);

// What an insert hands over: from page `owned_pages` on the caller owns its pages, and their window
// data from page `window_from` on.
struct Offered {
    int64_t owned_pages = 0;
    int64_t window_from = 0;
    bool state = false;
    int64_t counted_pages = 0;
    int64_t priority = 0;
};

// Pages whose full data the tree took, and their rows.
struct Adopted {
    int32_t begin = 0;
    Runs rows;
};

// Nodes in a row that took window data, from below `above` down to `end`; `locked` where they had
// full data before that a lock holds, so that its slots must stay.
struct AdoptedWindow {
    uint64_t end = 0;
    uint64_t above = 0;
    Pages pages;
    bool locked = false;
};

struct NodeInserted {
    uint64_t end = 0;
    int32_t walked_pages = 0;
    std::vector<Adopted> full;
    // Full data that was there when its window data came, and that no lock holds: the caller may
    // put its own slots behind these rows.
    std::vector<Adopted> healed;
    std::vector<AdoptedWindow> windows;
    // The row of the state; empty where it was not taken.
    Runs state;
    // Pages of the caller that the tree had, without those whose window data came.
    std::vector<Pages> duplicates;
    // Nodes to copy to the host, in this order; and the lowest of them, which the others are above.
    std::vector<uint64_t> wanted;
    uint64_t wanted_end = 0;
    std::vector<NodeCut> cuts;
};

// Called with the first page and the rows of the full data that an insert offers to the tree, which
// may take some or all of them. What it throws refuses the insert.
using OnRows = std::function<void(int64_t first_page, const Runs& rows)>;

// Insert a key; the tree takes rows for what it lacks. Throws: BadArgument, OutOfSlots,
// PrefixNotCached, and what `on_rows` throws.
NodeInserted insert_nodes(State& state, const Key& key, const Offered& offered,
                          const OnRows& on_rows = {});

}  // namespace kvcanon
