#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bind_arrays.hpp"
#include "bind_numbers.hpp"
#include "bind_rows.hpp"
#include "docstrings_nodes.hpp"
#include "emit.hpp"
#include "errors.hpp"
#include "lock.hpp"
#include "node_moves.hpp"
#include "nodes_view.hpp"
#include "tree.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvcanon {

namespace {

Medium medium_of(int64_t number) {
    if (number != GPU && number != CPU) {
        throw BadArgument("medium", "is " + std::to_string(number) + "; there are 0 and 1");
    }
    return static_cast<Medium>(number);
}

nb::tuple rows_by_component(const NodeSlots& slots) {
    return nb::make_tuple(rows_or_none(slots.of[FULL]), rows_or_none(slots.of[SWA]),
                          rows_or_none(slots.of[MAMBA]));
}

nb::tuple paired_rows(const PairedSlots& found) {
    return nb::make_tuple(rows_by_component(found.slots), rows_or_none(found.paired));
}

void which(nb::handle components, bool (&wanted)[COMPONENTS]) {
    for (nb::handle each : components) wanted[component_of(each)] = true;
}

nb::object do_match(NodesView& self, nb::handle tokens, nb::handle namespace_number) {
    return matched_of(self.core.operate(Operation::MATCH, [&] {
        const GivenKey given = prompt_key(self.core, tokens, namespace_number);
        return match_nodes(self.core.state, given.key);
    }));
}

nb::tuple do_lock(NodesView& self, uint64_t node, bool window, bool mamba, nb::handle windows_of) {
    return self.core.operate(Operation::LOCK, [&] {
        State& state = self.core.state;
        const NodeLocked locked =
            lock_node(state, node_at(state, node), window, mamba, nodes_at(state, windows_of));
        return nb::make_tuple(locked.receipt, locked.protected_slots, locked.window_below_root);
    });
}

template <typename Release>
void release_with(NodesView& self, Operation operation, uint64_t node, nb::handle receipt,
                  Release release) {
    self.core.operate(operation, [&] {
        State& state = self.core.state;
        const uint64_t number = receipt_number(receipt);
        hold_of(state, node_at(state, node), number);
        release(state, number);
    });
}

Runs do_slots(NodesView& self, uint64_t end, std::optional<uint64_t> above, nb::handle component,
              int64_t medium) {
    return self.core.look([&] {
        const State& state = self.core.state;
        const Node* node = node_at(state, end);
        return slots_between(node, above ? node_at(state, *above) : node->parent,
                             component_of(component), medium_of(medium));
    });
}

nb::object do_insert(NodesView& self, nb::handle tokens, nb::handle namespace_number,
                     nb::handle owned_pages, nb::handle window_from, bool has_state,
                     nb::handle counted_pages, nb::handle priority) {
    return inserted_of(self.core.operate(Operation::INSERT, [&] {
        const GivenKey given = prompt_key(self.core, tokens, namespace_number);
        Offered offered;
        offered.owned_pages = whole_number(owned_pages, "owned_pages");
        offered.window_from = whole_number(window_from, "window_from");
        offered.state = has_state;
        offered.counted_pages = whole_number(counted_pages, "counted_pages");
        offered.priority = whole_number(priority, "priority");
        return insert_nodes(self.core.state, given.key, offered);
    }));
}

nb::object do_evict_step(NodesView& self, nb::handle component, nb::handle slots) {
    return step_of(self.core.operate(Operation::EVICT, [&] {
        const int64_t enough = whole_number(slots, "slots");
        if (enough < 1) throw BadArgument("slots", "is " + std::to_string(enough) + "; at least 1");
        return evict_step(self.core.state, component_of(component), enough);
    }));
}

nb::object do_evict_node(NodesView& self, uint64_t node, nb::handle component) {
    return step_of(self.core.operate(Operation::EVICT, [&] {
        State& state = self.core.state;
        return evict_node(state, node_at(state, node), component_of(component));
    }));
}

nb::tuple do_evict_host(NodesView& self, nb::handle component, nb::handle slots) {
    return self.core.operate(Operation::EVICT_HOST, [&] {
        const int64_t asked = whole_number(slots, "slots");
        const Journal done = evict_host_nodes(self.core.state, component_of(component), asked);
        return nb::make_tuple(freed_on(done, GPU), freed_on(done, CPU));
    });
}

nb::tuple do_slots_to_back_up(NodesView& self, nb::handle nodes) {
    return self.core.look([&] {
        const State& state = self.core.state;
        return paired_rows(slots_to_back_up(state, nodes_at(state, nodes)));
    });
}

nb::tuple do_slots_to_load(NodesView& self, uint64_t end) {
    return self.core.look([&] {
        const State& state = self.core.state;
        return rows_by_component(slots_to_load(state, node_at(state, end)));
    });
}

nb::tuple do_add_host_copy(NodesView& self, nb::handle nodes, nb::handle components) {
    return self.core.operate(Operation::COMMIT_HOST, [&] {
        State& state = self.core.state;
        bool wanted[COMPONENTS] = {false, false, false};
        which(components, wanted);
        const HostCopied copied = add_host_copy(state, nodes_at(state, nodes), wanted);
        return nb::make_tuple(rows_by_component(copied.slots), copied.stored);
    });
}

nb::tuple do_add_device_copy(NodesView& self, uint64_t end, nb::handle components) {
    return self.core.operate(Operation::LOAD_BACK, [&] {
        State& state = self.core.state;
        bool wanted[COMPONENTS] = {false, false, false};
        which(components, wanted);
        return paired_rows(add_device_copy(state, node_at(state, end), wanted));
    });
}

Runs do_add_device_data(NodesView& self, uint64_t node, nb::handle component) {
    return self.core.operate(Operation::LOAD_BACK, [&] {
        State& state = self.core.state;
        return add_device_data(state, node_at(state, node), component_of(component));
    });
}

void do_emit_host_store(NodesView& self, uint64_t node) {
    self.core.operate(Operation::SETTLE, [&] {
        State& state = self.core.state;
        emit_stored(state, node_at(state, node), CPU);
    });
}

// The handle of the node above; None for the root.
nb::object do_parent(NodesView& self, uint64_t node) {
    return self.core.look([&]() -> nb::object {
        const Node* parent = node_at(self.core.state, node)->parent;
        return parent == nullptr ? nb::object(nb::none()) : nb::cast(handle_of(parent));
    });
}

std::vector<uint64_t> do_children(NodesView& self, uint64_t node) {
    return self.core.look([&] {
        std::vector<uint64_t> found;
        const Node* child = node_at(self.core.state, node)->first_child;
        for (; child != nullptr; child = child->next) found.push_back(handle_of(child));
        return found;
    });
}

// First page, one past the last, and for each component and medium whether the node has it.
nb::tuple do_describe(NodesView& self, uint64_t node) {
    return self.core.look([&] {
        const Node* found = node_at(self.core.state, node);
        const auto on = [&](Medium medium) {
            return nb::make_tuple(found->data[FULL].on(medium), found->data[SWA].on(medium),
                                  found->data[MAMBA].on(medium));
        };
        return nb::make_tuple(found->start.get(), found->end(), on(GPU), on(CPU));
    });
}

bool do_has(NodesView& self, uint64_t node, nb::handle component, int64_t medium) {
    return self.core.look([&] {
        return node_at(self.core.state, node)->data[component_of(component)].on(medium_of(medium));
    });
}

std::vector<uint64_t> do_all(NodesView& self) {
    return self.core.look([&] {
        std::vector<uint64_t> found;
        for (const Node* node : all_nodes(self.core.state)) found.push_back(handle_of(node));
        return found;
    });
}

uint64_t do_root(NodesView& self) { return handle_of(self.core.state.root); }

void do_forget(NodesView& self) {
    self.core.operate(Operation::RESET, [&] { forget(self.core.state, self.core.gate); });
}

void do_set_wanted_hits(NodesView& self, nb::handle hits) {
    const int64_t number = whole_number(hits, "hits");
    if (number < 1) throw BadArgument("hits", "is " + std::to_string(number) + "; at least 1");
    self.core.look([&] { self.core.state.config.wanted_hits = number; });
}

void do_set_write_back(NodesView& self, bool write_back) {
    self.core.operate(Operation::SETTLE, [&] { set_write_back(self.core.state, write_back); });
}

}  // namespace

std::vector<Node*> nodes_at(const State& state, nb::handle handles) {
    std::vector<Node*> found;
    for (nb::handle each : handles) found.push_back(node_at(state, nb::cast<uint64_t>(each)));
    return found;
}

Component component_of(nb::handle given) {
    const int64_t number = whole_number(given, "component");
    if (number < 0 || number >= COMPONENTS) {
        throw BadArgument("component", "is " + std::to_string(number) + "; there are 0 to 2");
    }
    return static_cast<Component>(number);
}

GivenKey prompt_key(CacheCore& core, nb::handle tokens, nb::handle namespace_number) {
    const int64_t number = whole_number(namespace_number, "namespace");
    if (core.state.config.page_words == core.state.config.page_size) {
        return key_of(core.state, tokens, number, core.words);
    }
    return bigrams_of(core.state, tokens, number, core.words);
}

void bind_nodes(nb::module_& m, nb::class_<NodesView>& nodes) {
    bind_rows(m);
    const auto add = [&nodes](const char* name, auto function, const Docstring& doc,
                              const auto&... arguments) {
        nodes.def(name, function, arguments..., nb::sig(doc.signature), doc.text);
    };
    const auto releasing = [](Operation operation, void (*release)(State&, uint64_t)) {
        return [operation, release](NodesView& self, uint64_t node, nb::handle receipt) {
            release_with(self, operation, node, receipt, release);
        };
    };
    add("root", &do_root, docs::NODES_ROOT);
    add("match", &do_match, docs::NODES_MATCH, "tokens"_a, "namespace"_a = 0);
    add("lock", &do_lock, docs::NODES_LOCK, "node"_a, "window"_a = true, "state"_a = true,
        "windows_of"_a = nb::make_tuple());
    add("unlock", releasing(Operation::UNLOCK, &unlock), docs::NODES_UNLOCK, "node"_a, "receipt"_a);
    add("unlock_window", releasing(Operation::UNLOCK_WINDOW, &unlock_window),
        docs::NODES_UNLOCK_WINDOW, "node"_a, "receipt"_a);
    add("unlock_state", releasing(Operation::UNLOCK_WINDOW, &release_state),
        docs::NODES_UNLOCK_STATE, "node"_a, "receipt"_a);
    add("slots", &do_slots, docs::NODES_SLOTS, "end"_a, "above"_a.none() = nb::none(),
        "component"_a = 0, "medium"_a = 0);
    add("insert", &do_insert, docs::NODES_INSERT, "tokens"_a, "namespace"_a = 0,
        "owned_pages"_a = 0, "window_from"_a = 0, "state"_a = false, "counted_pages"_a = 0,
        "priority"_a = 0);
    add("evict_step", &do_evict_step, docs::NODES_EVICT_STEP, "component"_a, "slots"_a = 1);
    add("evict_node", &do_evict_node, docs::NODES_EVICT_NODE, "node"_a, "component"_a);
    add("evict_host", &do_evict_host, docs::NODES_EVICT_HOST, "component"_a, "slots"_a);
    add("slots_to_back_up", &do_slots_to_back_up, docs::NODES_TO_BACK_UP, "nodes"_a);
    add("add_host_copy", &do_add_host_copy, docs::NODES_ADD_HOST, "nodes"_a, "components"_a);
    add("emit_host_store", &do_emit_host_store, docs::NODES_EMIT_HOST, "node"_a);
    add("slots_to_load", &do_slots_to_load, docs::NODES_TO_LOAD, "end"_a);
    add("add_device_copy", &do_add_device_copy, docs::NODES_ADD_DEVICE, "end"_a, "components"_a);
    add("add_device_data", &do_add_device_data, docs::NODES_ADD_DATA, "node"_a, "component"_a);
    add("parent", &do_parent, docs::NODES_PARENT, "node"_a);
    add("children", &do_children, docs::NODES_CHILDREN, "node"_a);
    add("describe", &do_describe, docs::NODES_DESCRIBE, "node"_a);
    add("has", &do_has, docs::NODES_HAS, "node"_a, "component"_a, "medium"_a = 0);
    add("all", &do_all, docs::NODES_ALL);
    add("set_wanted_hits", &do_set_wanted_hits, docs::NODES_WANTED_HITS, "hits"_a);
    add("set_write_back", &do_set_write_back, docs::NODES_WRITE_BACK, "write_back"_a);
    add("forget", &do_forget, docs::NODES_FORGET);
    bind_nodes_storage(nodes);
}

}  // namespace kvcanon
