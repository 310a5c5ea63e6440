// A journal: what a call did to nodes and slots, for a caller that keeps tables of its own.
//
// While a state has a journal, every cut, every placement and every release is written into it.
#pragma once

#include <cstdint>
#include <vector>

#include "config.hpp"
#include "runs.hpp"

namespace kvcanon {

struct Node;

// A node was cut: `lower` is the node that was there, `upper` the new one above it, by handle, with
// `pages` pages.
struct NodeCut {
    uint64_t upper;
    uint64_t lower;
    int32_t pages;
};

// A node got slots. Its first page and its pages are those of that moment; a cut may follow.
struct Placed {
    Node* node;
    Component component;
    Medium medium;
    int32_t start;
    int32_t pages;
    Runs slots;

    int32_t end() const { return start + pages; }
};

struct Journal {
    std::vector<NodeCut> cuts;
    std::vector<Placed> placements;
    // Slots of nodes that came free, in the order of their release. Window slots on the device are
    // named by the full slots of their pages.
    Runs freed[COMPONENTS][MEDIA];
};

}  // namespace kvcanon
