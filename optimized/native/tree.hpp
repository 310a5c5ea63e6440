// The tree: how a key is walked down, and how nodes are cut, added and removed.
//
// A cut makes a new node *above* and leaves the old one below, so that locks and copies of the old
// node still refer to their end.
#pragma once

#include "state.hpp"

namespace kvcanon {

// Walk down: the nodes that share pages with a key. Each but the last shares all its pages.
Path walk(State& state, const Key& key);

// Walk down for a use. Where every node has all of its data on the device, the nodes above the last
// say nothing that matters: the path has the last one alone.
Path walk_for_use(State& state, const Key& key);

inline int32_t walked_pages(const Path& path) {
    return path.empty() ? 0 : path.back().node->start + path.back().shared;
}

// Walk the path of a key that must be in the tree as a whole. Throws: PrefixNotCached.
Path require(State& state, const Key& key);

// The node of a walked path that ends at a page, cut there if need be; the root for page 0.
Node* node_ending_at(State& state, const Path& path, int32_t end_pages);

// Make sure that a node begins at `at_page` on the path that ends with `end`.
void cut_path_at(State& state, Node* end, int64_t at_page);

// Cut a node before its page `at`: returns a new node above, with the first pages.
Node* cut(State& state, Node* node, int32_t at);

// A new node, without data yet, for the pages of a key below `parent` up to `end_pages`.
Node* add_leaf(State& state, Node* parent, const Key& key, int32_t end_pages, uint64_t tick,
               int64_t priority);

// Remove a node without children and without data from the tree.
void remove_leaf(State& state, Node* node);

// The nodes from below the root down to this one.
std::vector<Node*> path_to(Node* node);

// All nodes, each parent before its children; the root is the first.
std::vector<Node*> all_nodes(const State& state);

// Remove all nodes but the root. They must own no slots.
void forget_tree(State& state);

}  // namespace kvcanon
