#include "departures.hpp"

#include <cassert>

#include "emit.hpp"
#include "errors.hpp"
#include "invariants.hpp"
#include "slots.hpp"
#include "transfer.hpp"
#include "tree.hpp"

namespace kvcanon {

namespace {

// All nodes below a node, each parent before its children.
std::vector<Node*> below(Node* node) {
    std::vector<Node*> found{node};
    for (size_t at = 0; at < found.size(); ++at) {
        for (Node* child = found[at]->first_child; child != nullptr; child = child->next) {
            found.push_back(child);
        }
    }
    found.erase(found.begin());
    return found;
}

void give_back(State& state, LeavingVictim& departure) {
    assert(departure.node->departing);
    departure.node->departing = false;
    for (const Component component : ALL_COMPONENTS) {
        Runs& slots = departure.slots[component];
        if (!slots) continue;
        state.pool(component, GPU).leaving_slots -= slots.slots();
        place(state, departure.node, component, GPU, std::move(slots));
    }
}

void leave(State& state, LeavingVictim& departure) {
    Node* node = departure.node;
    bool leaves[COMPONENTS];
    for (const Component component : ALL_COMPONENTS) {
        leaves[component] = static_cast<bool>(departure.slots[component]);
    }
    give_back(state, departure);
    if (!departure.whole) {
        for (const Component component : ALL_COMPONENTS) {
            if (leaves[component]) drop(state, node, component, GPU);
        }
    } else if (node->data[FULL].on(CPU)) {
        vacate(state, node, GPU);
    } else {
        delete_leaf(state, node);
    }
}

}  // namespace

void vacate(State& state, Node* node, Medium medium) {
    emit_removed(state, node, medium);
    for (const Component component : {MAMBA, SWA, FULL}) drop(state, node, component, medium);
}

void delete_from_host(State& state, Node* node) {
    vacate(state, node, CPU);
    remove_leaf(state, node);
}

void delete_leaf(State& state, Node* node) {
    const std::vector<Node*> hanging = below(node);
    for (auto each = hanging.rbegin(); each != hanging.rend(); ++each) {
        delete_from_host(state, *each);
    }
    vacate(state, node, GPU);
    remove_leaf(state, node);
}

void depart(State& state, Departures& departures, Node* node, const std::vector<Component>& leaving,
            bool whole) {
    assert(!node->departing && node->data[FULL].on(GPU));
    LeavingVictim departure{node, {}, whole};
    for (const Component component : leaving) {
        Runs& slots = departure.slots[component];
        slots = take(state, node, component, GPU);
        state.pool(component, GPU).leaving_slots += slots.slots();
    }
    node->departing = true;
    departures.victims.push_back(std::move(departure));
}

void end_departures(State& state, Departures& departures) {
    if (departures.copy_id != 0) {
        submit(state, state.transfers.at(departures.copy_id));
        state.engine->wait(departures.copy_id);
        settle(state, static_cast<int>(Direction::BACKUP));
        if (state.transfers.count(departures.copy_id) != 0) {
            throw SpecViolation("the engine was waited for, and " +
                                std::to_string(departures.copy_id) + " is still in flight");
        }
        departures.copy_id = 0;
    }
    std::vector<LeavingVictim> victims = std::exchange(departures.victims, {});
    for (LeavingVictim& victim : victims) leave(state, victim);
    assert(nobody_departs(state));
}

void undo_departures(State& state, Departures& departures) {
    for (LeavingVictim& victim : departures.victims) give_back(state, victim);
    departures.victims.clear();
    const auto copy = state.transfers.find(std::exchange(departures.copy_id, 0));
    if (copy != state.transfers.end()) cancel(state, copy->second);
    assert(nobody_departs(state));
}

}  // namespace kvcanon
