#include <nanobind/stl/string.h>

#include <algorithm>

#include "cache_core.hpp"
#include "check.hpp"
#include "recency.hpp"
#include "slots.hpp"
#include "tree.hpp"

namespace nb = nanobind;

namespace kvcanon {

namespace {

Component component_at(int64_t number) {
    if (number < 0 || number >= COMPONENTS) {
        throw BadArgument("component", "is " + std::to_string(number) + "; there are 0 to 2");
    }
    return static_cast<Component>(number);
}

Medium medium_at(int64_t number) {
    if (number < 0 || number >= MEDIA) {
        throw BadArgument("medium", "is " + std::to_string(number) + "; there are 0 and 1");
    }
    return static_cast<Medium>(number);
}

nb::object id_or_none(uint64_t number) {
    return number == 0 ? nb::object(nb::none()) : nb::cast(number);
}

nb::object slots_or_none(const Runs& runs) {
    if (!runs) return nb::none();
    std::vector<Slot> slots(static_cast<size_t>(runs.slots()));
    expand(runs, slots.data());
    return nb::tuple(nb::cast(slots));
}

nb::tuple data_of(const Data& data, int64_t locks) {
    const auto filler = [](const Transfer* transfer) {
        return id_or_none(transfer == nullptr ? 0 : transfer->transfer_id);
    };
    return nb::make_tuple(slots_or_none(data.slots(GPU)), slots_or_none(data.slots(CPU)), locks,
                          filler(data.filling[GPU]), filler(data.filling[CPU]), data.used.get());
}

// The holds that lock each node's full data, by index: those that end at it or below.
std::vector<int64_t> full_locks(const State& state, const std::vector<Node*>& nodes) {
    std::vector<int64_t> locks(state.arena.size(), 0);
    for (const auto& [receipt, held] : state.holds) ++locks[held.node->index];
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
        if ((*node)->parent != nullptr) locks[(*node)->parent->index] += locks[(*node)->index];
    }
    locks[state.root->index] = 0;
    return locks;
}

nb::tuple node_of(const State& state, const Node* node, int64_t locks, const Uses& uses) {
    nb::list children;
    for (const Node* child = node->first_child; child != nullptr; child = child->next) {
        children.append(child->node_id);
    }
    nb::list data;
    for (const Component component : ALL_COMPONENTS) {
        if (!state.config.has(component)) continue;
        const Data& each = node->data[component];
        data.append(data_of(each, component == FULL ? locks : each.lock_refs));
    }
    nb::object words = nb::bytes("", 0), hashes = nb::none(), parent = nb::none();
    if (node->parent != nullptr) {
        const size_t bytes = static_cast<size_t>(node->pages) *
                             static_cast<size_t>(state.config.page_words) * sizeof(uint32_t);
        words = nb::bytes(reinterpret_cast<const char*>(state.words(node)), bytes);
        parent = nb::cast(node->parent->node_id);
        if (node->span->hashed() >= node->offset + node->pages) {
            hashes =
                nb::bytes(reinterpret_cast<const char*>(hash_of(node->span.get(), node->offset)),
                          static_cast<size_t>(node->pages) * HASH_BYTES);
        }
    }
    return nb::make_tuple(node->node_id, parent, nb::tuple(children),
                          state.namespaces->number_of(node->namespace_id), words, node->start.get(),
                          nb::tuple(data), uses.hit_count, uses.priority, node->created.get(),
                          uses.last_access, hashes);
}

nb::list nodes(TreeView& tree) {
    const State& state = tree.core.state;
    const std::vector<Node*> all = all_nodes(state);
    const std::vector<int64_t> locks = full_locks(state, all);
    const std::vector<Uses> uses = uses_of(state, all);
    nb::list listed;
    for (const Node* node : all) {
        listed.append(node_of(state, node, locks[node->index], uses[node->index]));
    }
    return listed;
}

nb::tuple slot_tuple(const std::vector<Slot>& slots) { return nb::tuple(nb::cast(slots)); }

nb::tuple pool_state(TreeView& tree, int64_t component, int64_t medium) {
    const Pool& pool = tree.core.state.pool(component_at(component), medium_at(medium));
    return nb::make_tuple(pool.free.capacity(), slot_tuple(pool.free.list()),
                          slot_tuple(pool.held.list()));
}

nb::list holds(TreeView& tree) {
    std::vector<const Hold*> open;
    open.reserve(tree.core.state.holds.size());
    for (const auto& [receipt, held] : tree.core.state.holds) open.push_back(&held);
    std::sort(open.begin(), open.end(),
              [](const Hold* a, const Hold* b) { return a->receipt < b->receipt; });
    nb::list listed;
    for (const Hold* held : open) {
        nb::object window = nb::none();
        if (held->window_from >= 0) window = nb::cast(held->window_from);
        const uint64_t transfer = held->transfer == nullptr ? 0 : held->transfer->transfer_id;
        listed.append(nb::make_tuple(held->receipt, held->node->node_id, window, held->mamba_held,
                                     id_or_none(transfer)));
    }
    return listed;
}

nb::list transfers(TreeView& tree) {
    nb::list listed;
    for (const auto& [transfer_id, transfer] : tree.core.state.transfers) {
        nb::list parts, sources, targets;
        for (const Part& part : transfer.parts) {
            parts.append(nb::make_tuple(part.node->node_id, static_cast<int>(part.component)));
        }
        for (const Component component : ALL_COMPONENTS) {
            sources.append(slots_or_none(transfer.sources[component]));
            targets.append(slots_or_none(transfer.targets[component]));
        }
        listed.append(nb::make_tuple(transfer_id, static_cast<int>(transfer.direction),
                                     nb::tuple(parts), nb::tuple(sources), nb::tuple(targets),
                                     transfer.cancelled));
    }
    return listed;
}

nb::dict pairs(TreeView& tree) {
    nb::dict found;
    const std::vector<Slot>& swa_of_full = tree.core.state.swa_of_full;
    for (size_t full = 0; full < swa_of_full.size(); ++full) {
        if (swa_of_full[full] >= 0) found[nb::int_(full)] = nb::int_(swa_of_full[full]);
    }
    return found;
}

bool client_holds(TreeView& tree, int64_t component, int64_t slot) {
    return holds_slot(tree.core.state, component_at(component), GPU, slot);
}

// Device slots of the tree that are evictable, and that a lock protects.
nb::tuple usage(TreeView& tree, int64_t component) {
    const Pool& pool = tree.core.state.pool(component_at(component), GPU);
    return nb::make_tuple(pool.owned_slots - pool.protected_slots, pool.protected_slots);
}

nb::tuple free_counts(TreeView& tree, int64_t medium) {
    const Counts free = free_slot_counts(tree.core.state, medium_at(medium));
    return nb::make_tuple(free[FULL], free[SWA], free[MAMBA]);
}

// Slot counts of a pool without its padding: capacity, free, held, in the tree, locked in the tree.
nb::tuple pool_counts(TreeView& tree, int64_t component, int64_t medium) {
    State& state = tree.core.state;
    const Pool& pool = state.pool(component_at(component), medium_at(medium));
    const int64_t padding = state.config.padding(component_at(component), medium_at(medium));
    return nb::make_tuple(pool.free.capacity() - padding, pool.free.size(),
                          pool.held.size() - padding, pool.owned_slots, pool.protected_slots);
}

// Counters since the cache was made, and present sizes. `span_bytes` is of all caches.
nb::dict counters(TreeView& tree) {
    const State& state = tree.core.state;
    const Counters& all = state.counters;
    const auto three = [](const uint64_t* by_component) {
        return nb::make_tuple(by_component[FULL], by_component[SWA], by_component[MAMBA]);
    };
    nb::dict found;
    found["matches"] = all.matches;
    found["asked_pages"] = all.asked_pages;
    found["matched_device_pages"] = all.matched_pages[GPU];
    found["matched_host_pages"] = all.matched_pages[CPU];
    found["inserts"] = all.inserts;
    found["inserted_pages"] = all.inserted_pages;
    found["duplicate_pages"] = all.duplicate_pages;
    found["evicted_device_slots"] = three(all.evicted_slots[GPU]);
    found["evicted_host_slots"] = three(all.evicted_slots[CPU]);
    found["evicted_for_load_slots"] = three(all.evicted_for_load_slots);
    found["backups"] = all.transfers[0];
    found["load_backs"] = all.transfers[1];
    found["backup_slots"] = three(all.moved_slots[0]);
    found["load_back_slots"] = three(all.moved_slots[1]);
    found["transfers_done"] = all.settled[0];
    found["transfers_failed"] = all.settled[1];
    found["transfers_cancelled"] = all.settled[2];
    found["transfers_in_flight"] = state.transfers.size();
    found["declined_backup_pages"] = all.declined_backup_pages;
    found["events"] = all.events;
    found["pending_events"] = state.events.log.size();
    found["dropped_events"] = all.dropped_events;
    found["namespaces"] = state.namespaces->size();
    found["idle_namespaces"] = state.namespaces->idle();
    found["nodes"] = state.node_count;
    found["span_bytes"] = span_bytes;
    found["arena_nodes"] = state.arena.size();
    found["receipts"] = state.holds.size() + state.host_holds.size();
    size_t queued = 0;
    for (const VictimQueue& queue : state.queues) queued += queue.size();
    found["queued_candidates"] = queued;
    return found;
}

// Calls, refusals and nanoseconds of each operation.
nb::dict calls(TreeView& tree) {
    nb::dict found;
    for (int operation = 0; operation < OPERATIONS; ++operation) {
        const Calls& each = tree.core.calls[operation];
        found[OPERATION_NAMES[operation]] =
            nb::make_tuple(each.count, each.refused, each.nanoseconds);
    }
    return found;
}

// Keeps operations out while a method reads what they change in several steps.
template <typename Result, typename... Arguments>
auto apart(Result (*read)(TreeView&, Arguments...)) {
    return [read](TreeView& tree, Arguments... arguments) {
        return tree.core.look([&] { return read(tree, arguments...); });
    };
}

}  // namespace

void bind_inspection(nb::class_<TreeView>& tree) {
    const auto component = nb::arg("component");
    const auto medium = nb::arg("medium");
    tree.def("nodes", apart(&nodes), nb::sig("def nodes(self) -> list[NodeTuple]"),
             "Return every node as a tuple, the root first.")
        .def("pool", apart(&pool_state), component, medium,
             nb::sig("def pool(self, component: int, medium: int) -> "
                     "tuple[int, tuple[int, ...], tuple[int, ...]]"),
             "Return the capacity of a pool, its free slots and those that requests hold.")
        .def("holds_slot", &client_holds, component, nb::arg("slot"),
             "Return whether a request holds this device slot.")
        .def("holds", apart(&holds),
             nb::sig("def holds(self) -> list[tuple[int, int, int | None, bool, int | None]]"),
             "Return every open receipt as a tuple, the oldest first.")
        .def("transfers", apart(&transfers), nb::sig("def transfers(self) -> list[TransferTuple]"),
             "Return every transfer in flight as a tuple.")
        .def("pairs", apart(&pairs), nb::sig("def pairs(self) -> dict[int, int]"),
             "Return the window slot of each full slot that has one.")
        .def("usage", &usage, component,
             nb::sig("def usage(self, component: int) -> tuple[int, int]"),
             "Return how many device slots of the tree are evictable, and how many locked.")
        .def("free_counts", &free_counts, medium,
             nb::sig("def free_counts(self, medium: int) -> Three"),
             "Return the free slots of each component.")
        .def("pool_counts", &pool_counts, component, medium,
             nb::sig("def pool_counts(self, component: int, medium: int) -> "
                     "tuple[int, int, int, int, int]"),
             "Return slot counts: capacity, free, held by requests, in the tree, locked there.")
        .def("counters", &counters, nb::sig("def counters(self) -> dict[str, int | Three]"),
             "Return all counters of the core by name.")
        .def("calls", &calls, nb::sig("def calls(self) -> dict[str, tuple[int, int, int]]"),
             "Return calls, refusals and nanoseconds of each operation by name.")
        .def(
            "check", [](TreeView& self) { self.core.look([&] { check(self.core.state); }); },
            "Check that redundant state agrees. Raises: SpecViolation.");
}

}  // namespace kvcanon
