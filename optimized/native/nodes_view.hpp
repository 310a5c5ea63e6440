// What Python calls of `nodes.hpp` and `node_moves.hpp`: kvcanon.optimized._core.Nodes.
#pragma once

#include "cache_core.hpp"

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

// Adds the classes of results.
void bind_node_results(nanobind::module_& m);

// Adds the classes of results, and the methods.
void bind_nodes(nanobind::module_& m, nanobind::class_<NodesView>& nodes);

}  // namespace kvcanon
