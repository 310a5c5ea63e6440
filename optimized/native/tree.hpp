// The tree: how a key is walked down, and how nodes are cut, added and removed.
//
// What readers get wrong: a cut makes a new node *above* and leaves the old one below, so that
// whoever holds the old node still holds the end of what they locked or copy.
#pragma once

#include "state.hpp"

namespace kvcanon {

// The nodes that a key shares pages with, from below the root down, into `state.path`. Of each it
// shares all pages, but of the last perhaps only some.
Path& walk(State& state, const Key& key);

inline int32_t walked_pages(const Path& path) {
    return path.empty() ? 0 : path.back().node->start + path.back().shared;
}

// The path of a key that must be in the tree whole. Throws: PrefixNotCached.
Path& require(State& state, const Key& key);

// The node of a walked path that ends at a page, cut there if need be; the root for page 0.
Node* node_ending_at(State& state, const Path& path, int32_t end_pages);

// Make sure that a node begins at `at_page` on the path that ends with `end`.
void cut_path_at(State& state, Node* end, int64_t at_page);

// Part a node before its page `at`: a new node above takes the first pages, and is returned.
Node* cut(State& state, Node* node, int32_t at);

// A new node, without data yet, for the pages of a key below `parent` up to `end_pages`.
Node* add_leaf(State& state, Node* parent, const Key& key, int32_t end_pages, uint64_t tick,
               int64_t priority);

// Take a childless node, which owns nothing any more, out of the tree.
void remove_leaf(State& state, Node* node);

// The nodes from below the root down to this one.
std::vector<Node*> path_to(Node* node);

// Start over with an empty tree, whose nodes own nothing any more.
void forget_tree(State& state);

}  // namespace kvcanon
