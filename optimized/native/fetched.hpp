// Pages that a caller fetched from storage, below a node: which of them the tree takes on the host.
//
// The caller has filled its own host slots, and the tree gives rows to those that it takes. Nodes
// that the device alone has adopt a host copy, and pages that the tree lacks become a new node on
// the host alone. Under write_back nothing is adopted: a host copy is made when data leaves the
// device. What is not taken stays the caller's.
//
// `insert_host` in host_insert.hpp does this for a caller whose slots are the cache's own.
#pragma once

#include "nodes.hpp"

namespace kvcanon {

// Pages and states are counted from the first that was fetched.
struct FetchedTaken {
    // The node with the last page, where the host has it; 0 for none.
    uint64_t end = 0;
    // Leading pages that stay the caller's: the host had them, or the tree had them under
    // write_back.
    int32_t present_pages = 0;
    // Whether pages were left over: the host would lack the page before them.
    bool dropped = false;
    std::vector<Adopted> taken;
    std::vector<NodeCut> cuts;
};

// Take fetched pages that follow a node, and count them as used. Throws: BadArgument, OutOfSlots.
FetchedTaken take_fetched(State& state, Node* above, const Key& fetched);

struct WindowTaken {
    std::vector<Adopted> taken;
    // Pages that stay the caller's.
    std::vector<Pages> left;
    std::vector<NodeCut> cuts;
};

// Take the window data of the last `pages` pages down to a node's end, for nodes below `above` that
// have none on the host. Throws: BadArgument, OutOfSlots.
WindowTaken take_fetched_window(State& state, const Node* above, Node* end, int64_t pages);

// Take the state at a node's end; no row where the node has one on the host. Throws: BadArgument,
// OutOfSlots.
Runs take_fetched_state(State& state, Node* end);

}  // namespace kvcanon
