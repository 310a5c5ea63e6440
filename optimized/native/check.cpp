#include "check.hpp"

#include <algorithm>

#include "errors.hpp"
#include "invariants.hpp"
#include "tree.hpp"
#include "victims.hpp"

namespace kvcanon {

namespace {

// Nodes that `check_some` looks at.
constexpr uint32_t NODES_AT_ONCE = 64;

void require(bool holds, const Node* node, const char* what) {
    if (holds) return;
    throw SpecViolation(std::string("node ") + std::to_string(node->node_id) + ": " + what);
}

void check_links(State& state, const Node* node) {
    int32_t device_children = 0;
    const Node* previous = nullptr;
    for (const Node* child = node->first_child; child != nullptr; child = child->next) {
        require(child->parent == node, child, "its parent is another");
        require(child->previous == previous, child, "its links to siblings do not agree");
        require(child->start == node->end(), child, "it does not begin where its parent ends");
        const size_t page_words = static_cast<size_t>(state.config.page_words);
        require(state.children.find(state.arena, node, child->namespace_id, state.words(child),
                                    page_words) == child,
                child, "it is not found by its first page");
        device_children += child->data[FULL].on(GPU) ? 1 : 0;
        previous = child;
    }
    require(node->last_child == previous, node, "its last child is another");
    require(node->device_children == device_children, node, "children on the device miscounted");
}

void check_span(const Node* node) {
    const TokenSpan* span = node->span.get();
    require(node->pages > 0 && node->offset >= 0, node, "it has no pages");
    require(node->offset + node->pages <= span->needed, node, "its tokens were given up");
    require(is_sound(*span), node, "its span has other pages or hashes than it says");
    require(span->namespace_id == node->namespace_id, node, "its span is of another namespace");
    require((span->last == node->index) == (node->offset + node->pages == span->needed), node,
            "its span ends elsewhere than it says");
}

void check_data(const Node* node) {
    for (const Component component : ALL_COMPONENTS) {
        const Data& data = node->data[component];
        for (const Medium medium : {GPU, CPU}) {
            const int32_t slots = data.slots(medium).slots();
            require(slots == 0 || slots == (component == MAMBA ? 1 : node->pages), node,
                    "it has too many or too few slots for its pages");
            require(slots != 0 || data.filling[medium] == nullptr, node,
                    "a copy fills slots that it does not have");
        }
    }
}

// Full data counts the holds that end at the node, and its locked children.
void check_locks(const State& state, const std::vector<Node*>& nodes) {
    std::vector<int32_t> counted(state.arena.size(), 0);
    for (const auto& [receipt, held] : state.holds) ++counted[held.node->index];
    for (const Node* node : nodes) {
        if (node->data[FULL].lock_refs != 0) ++counted[node->parent->index];
    }
    for (const Node* node : nodes) {
        if (node->parent == nullptr) continue;
        require(node->data[FULL].lock_refs == counted[node->index], node, "its locks miscounted");
    }
}

// Each hold of host copies is counted by every node that it covers, and by the state at its end.
void check_host_holds(const State& state, const std::vector<Node*>& nodes) {
    std::vector<int32_t> covered(state.arena.size(), 0), ended(state.arena.size(), 0);
    for (const auto& [receipt, held] : state.host_holds) {
        for (const Node* node = held.node; node->parent != nullptr; node = node->parent) {
            if (node->start >= held.from_page) ++covered[node->index];
        }
        if (held.node->parent != nullptr) ++ended[held.node->index];
    }
    for (const Node* node : nodes) {
        for (const Component component : ALL_COMPONENTS) {
            if (!state.config.has(component)) continue;
            const std::vector<int32_t>& counted = component == MAMBA ? ended : covered;
            require(node->data[component].host_holds == counted[node->index], node,
                    "holds on its host copy miscounted");
        }
    }
}

void check_queues(const State& state, const std::vector<Node*>& nodes) {
    size_t queued = 0, candidates = 0;
    for (const Queue queue : state.queue_kinds) {
        queued += state.queue(queue).size();
        require(state.queue(queue).in_order(), state.root, "a queue of victims is out of order");
    }
    for (const Node* node : nodes) {
        for (int bits = node->queued; bits != 0; bits &= bits - 1) ++candidates;
    }
    require(queued == candidates, state.root, "a queue has nodes that are gone");
}

// What one node shows.
void check_alone(const State& state, const Node* node) {
    check_span(node);
    check_data(node);
    require(is_queued_right(state, node), node, "it is in the wrong queues, or places");
    require(node->settling == 0, node, "it is still marked by a settlement");
    require(!node->departing, node, "it is a victim that has not left");
}

void check_pool(State& state, Component component, Medium medium, const std::vector<Node*>& nodes) {
    Pool& pool = state.pool(component, medium);
    std::vector<Slot> owned = pool.free.list();
    if (static_cast<int64_t>(owned.size()) != pool.free.size()) {
        throw SpecViolation("free slots miscounted");
    }
    const std::vector<Slot> held = pool.held.list();
    owned.insert(owned.end(), held.begin(), held.end());
    int64_t owned_slots = 0, protected_slots = 0;
    const auto add = [&](const Runs& runs) {
        const size_t before = owned.size();
        owned.resize(before + static_cast<size_t>(runs.slots()));
        expand(runs, owned.data() + before);
    };
    for (const Node* node : nodes) {
        const Data& data = node->data[component];
        add(data.slots(medium));
        owned_slots += data.slots(medium).slots();
        if (node->protects(component, medium)) protected_slots += data.slots(medium).slots();
    }
    for (const auto& [transfer_id, transfer] : state.transfers) {
        if (transfer.cancelled && transfer.target() == medium) add(transfer.targets[component]);
    }
    std::sort(owned.begin(), owned.end());
    bool once = static_cast<int64_t>(owned.size()) == state.config.capacity(component, medium);
    for (size_t at = 0; once && at < owned.size(); ++at) once = owned[at] == static_cast<Slot>(at);
    if (!once) throw SpecViolation("a slot has no owner, or two");
    if (pool.owned_slots != owned_slots || pool.protected_slots != protected_slots) {
        throw SpecViolation("slots of nodes miscounted");
    }
}

}  // namespace

void check(State& state) {
    const std::vector<Node*> nodes = all_nodes(state);
    require(state.node_count + 1 == nodes.size(), state.root, "nodes miscounted");
    require(state.children.size() + 1 == nodes.size(), state.root, "the child table has others");
    for (const Node* node : nodes) {
        check_links(state, node);
        if (node->parent == nullptr) continue;
        check_alone(state, node);
    }
    check_locks(state, nodes);
    check_host_holds(state, nodes);
    check_queues(state, nodes);
    require(nobody_departs(state), state.root, "a victim of an earlier eviction has not left");
    for (const Component component : ALL_COMPONENTS) {
        for (const Medium medium : {GPU, CPU}) {
            check_pool(state, component, medium, nodes);
        }
    }
    for (size_t full = 0; full < state.swa_of_full.size(); ++full) {
        const Slot swa = state.swa_of_full[full];
        if (swa >= 0 && state.full_of_swa[static_cast<size_t>(swa)] != static_cast<Slot>(full)) {
            throw SpecViolation("a pairing is missing on one side");
        }
    }
}

void check_some(State& state) {
    require(nobody_departs(state), state.root, "a victim of an earlier eviction has not left");
    for (uint32_t left = std::min(NODES_AT_ONCE, state.arena.size()); left != 0; --left) {
        const Node* node = state.arena.at(state.next_checked++ % state.arena.size());
        if (node->parent != nullptr) check_alone(state, node);
    }
}

}  // namespace kvcanon
