// What Python calls of `nodes.hpp` and `node_moves.hpp`: kvcanon.optimized._core.Nodes.
#pragma once

#include "cache_core.hpp"
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

// The slots that came free on a medium, by component; None where none did.
nanobind::tuple freed_on(const Journal& journal, Medium medium);

// The results of calls for Python: tuples with named fields.
nanobind::object matched_of(const NodeMatched& found);
nanobind::object inserted_of(const NodeInserted& done);
nanobind::object step_of(const EvictStep& step);

// Find the types of results, which are in Python. Not at import: that of kvcanon.optimized needs
// more than the stub's generator has.
void find_node_results();

// Adds the classes of rows, and the methods.
void bind_nodes(nanobind::module_& m, nanobind::class_<NodesView>& nodes);

}  // namespace kvcanon
