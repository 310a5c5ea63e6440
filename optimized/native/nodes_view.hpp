// What Python calls of `nodes.hpp`, `node_moves.hpp` and `fetched.hpp`:
// kvcanon.optimized._core.Nodes.
#pragma once

#include "cache_core.hpp"
#include "fetched.hpp"
#include "node_moves.hpp"
#include "nodes.hpp"

namespace kvcanon {

struct NodesView {
    // Keeps the cache alive.
    nanobind::object owner;
    CacheCore& core;

    explicit NodesView(nanobind::object cache)
        : owner(std::move(cache)), core(nanobind::cast<CacheCore&>(owner)) {}
};

// The key of a prompt. Where a unit is a bigram the tokens are those of the prompt: two neighbours
// are a unit, so that n + 1 tokens are n of them.
GivenKey prompt_key(CacheCore& core, nanobind::handle tokens, nanobind::handle namespace_number);

// The slots that came free on a medium, by component; None where none did.
nanobind::tuple freed_on(const Journal& journal, Medium medium);

// Parts of results, for Python.
nanobind::tuple three_of(const Counts& counts);
nanobind::list adopted_of(const std::vector<Adopted>& adopted);
nanobind::list cuts_of(const std::vector<NodeCut>& cuts);
nanobind::list windows_of(const std::vector<AdoptedWindow>& windows);
nanobind::list pages_of(const std::vector<Pages>& ranges);
nanobind::object state_row_of(const NodeInserted& done);

// The nodes of handles. Throws: BadArgument.
std::vector<Node*> nodes_at(const State& state, nanobind::handle handles);

// The component of a number. Throws: BadArgument.
Component component_of(nanobind::handle given);

// The results of calls for Python: tuples with named fields.
nanobind::object matched_of(const NodeMatched& found);
nanobind::object inserted_of(const NodeInserted& done);
nanobind::object step_of(const EvictStep& step);
nanobind::object fetched_of(const FetchedTaken& done);
nanobind::tuple window_of(const WindowTaken& done);

// Find the types of results, which are in Python. Not at import: that of kvcanon.optimized needs
// more than the stub's generator has.
void find_node_results();

// Adds the classes of rows, and the methods.
void bind_nodes(nanobind::module_& m, nanobind::class_<NodesView>& nodes);

// Adds the methods for storage below the host; `bind_nodes` does it.
void bind_nodes_storage(nanobind::class_<NodesView>& nodes);

}  // namespace kvcanon
