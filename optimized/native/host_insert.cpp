#include "host_insert.hpp"

#include <algorithm>
#include <cassert>

#include "emit.hpp"
#include "errors.hpp"
#include "evict.hpp"
#include "lock.hpp"
#include "recency.hpp"
#include "slots.hpp"
#include "tree.hpp"

namespace kvcanon {

namespace {

// Fetched payloads by page of the key, and where they were placed.
struct Fetched {
    Counts payloads;
    int64_t full_from;
    int64_t swa_from;
    uint64_t tick;
    HostInserted outcome;
    // Slots that a client has filled already; none where the payloads are copied later.
    const SlotLists* filled = nullptr;
};

// Make room for slots of a component; slots that are filled already have theirs.
bool has_room(State& state, Component component, int64_t count, const Fetched& fetched) {
    Counts counts;
    counts[component] = count;
    return fetched.filled != nullptr || free_host_slots(state, counts);
}

void check(const State& state, const Key& key, int64_t start, const Counts& payloads,
           int32_t cached) {
    if (!state.config.host_tier()) {
        throw BadArgument("insert_host", "needs a host tier; choose a write policy");
    }
    if (start < 0 || start > key.pages) {
        throw BadArgument("start_pages", "is " + std::to_string(start) + "; the key has " +
                                             std::to_string(key.pages) + " pages");
    }
    if (payloads[FULL] != key.pages - start) {
        throw BadArgument("payload.full", "has " + std::to_string(payloads[FULL]) +
                                              " pages for pages " + std::to_string(start) + ".." +
                                              std::to_string(key.pages));
    }
    if (payloads[SWA] > payloads[FULL] || payloads[MAMBA] > std::min<int64_t>(1, payloads[FULL])) {
        throw BadArgument("payload", "has window data or states for pages that it lacks");
    }
    for (const Component component : {FULL, SWA, MAMBA}) {
        if (payloads[component] != 0 && !state.config.has(component)) {
            throw BadArgument(std::string("payload.") + name_of(component),
                              "is for a component this cache lacks");
        }
    }
    if (cached < start) throw PrefixNotCached(start, cached);
}

// Give a node free host slots for the payloads from index `first` on.
void fill(State& state, Node* node, Component component, int64_t first, int32_t count,
          Fetched& fetched) {
    Runs slots;
    if (fetched.filled == nullptr) {
        slots = state.pool(component, CPU).free.take(count);
    } else {
        RunReader given((*fetched.filled)[component]);
        given.skip(static_cast<int32_t>(first));
        slots = given.next(count);
    }
    if (!node->data[component].on(GPU)) record_first_use(state, node, component, fetched.tick);
    fetched.outcome.placements.push_back({component, first, slots});
    place(state, node, component, CPU, std::move(slots));
}

// Give a node a host copy if it lacks one; returns whether host copies reach its end.
bool refill(State& state, Node* node, Fetched& fetched) {
    const Data& full = node->data[FULL];
    const int64_t begin = std::max<int64_t>(node->start, fetched.full_from);
    if (full.on(CPU)) {
        if (full.filling[CPU] != nullptr) return false;
        fetched.outcome.present_pages += std::max<int64_t>(0, node->end() - begin);
        return true;
    }
    if (begin > node->start && state.config.backed_parents()) return false;
    if (begin >= node->end()) return true;
    if (!has_room(state, FULL, node->end() - begin, fetched)) return false;
    if (begin > node->start) cut(state, node, static_cast<int32_t>(begin) - node->start);
    fill(state, node, FULL, node->start - fetched.full_from, node->pages, fetched);
    emit_stored(state, node, CPU);
    fetched.outcome.refilled_pages += node->pages;
    return true;
}

// Add a leaf for the rest of the key, or for as much of it as there are free slots.
Node* new_host_leaf(State& state, const Key& key, Node* parent, Fetched& fetched) {
    const int64_t wanted = key.pages - parent->end();
    const bool all = has_room(state, FULL, wanted, fetched);
    const auto fitting =
        static_cast<int32_t>(all ? wanted : std::min(wanted, state.free_slots(FULL, CPU)));
    if (fitting == 0) return parent;
    Node* leaf = add_leaf(state, parent, key, parent->end() + fitting, fetched.tick, 0);
    fill(state, leaf, FULL, leaf->start - fetched.full_from, leaf->pages, fetched);
    emit_stored(state, leaf, CPU);
    fetched.outcome.placed_pages += fitting;
    return leaf;
}

// Refill the path and add the missing pages; returns the last node with a host copy.
Node* place_full(State& state, const Key& key, Node* last, Fetched& fetched) {
    Node* end = state.root;
    for (Node* node : path_to(last)) {
        if (!refill(state, node, fetched)) return end;
        end = node;
    }
    return end->end() < key.pages ? new_host_leaf(state, key, end, fetched) : end;
}

// Whether a node with a settled host copy lacks a component there.
bool lacks(const Node* node, Component component) {
    return node->data[FULL].resident(CPU) && !node->data[component].on(CPU);
}

// Give the nodes at the end the window data that they lack on the host, all or none.
void place_window(State& state, Node* end, Fetched& fetched) {
    if (fetched.payloads[SWA] == 0) return;
    // The window is held, so that its own host data is not evicted to make free slots.
    const uint64_t receipt = hold(state, end, fetched.swa_from).receipt;
    std::vector<Node*> lacking;
    int64_t pages = 0;
    for (Node* node = end; node->parent != nullptr; node = node->parent) {
        if (node->start < fetched.swa_from || !lacks(node, SWA)) continue;
        lacking.push_back(node);
        pages += node->pages;
    }
    if (has_room(state, SWA, pages, fetched)) {
        for (Node* node : lacking) {
            fill(state, node, SWA, node->start - fetched.swa_from, node->pages, fetched);
        }
    }
    release_hold(state, receipt);
}

// Give the end node the mamba state that it lacks on the host.
void place_mamba(State& state, Node* end, Fetched& fetched) {
    if (fetched.payloads[MAMBA] != 0 && lacks(end, MAMBA) && has_room(state, MAMBA, 1, fetched)) {
        fill(state, end, MAMBA, 0, 1, fetched);
    }
}

// Place what was fetched along a path.
void place_all(State& state, const Key& key, const Path& path, Fetched& fetched) {
    Node* node = node_ending_at(state, path, walked_pages(path));
    // The path is held, so that eviction never takes the nodes that are being extended.
    const uint64_t receipt = hold(state, node, -1).receipt;
    Node* end = place_full(state, key, node, fetched);
    if (end->end() == key.pages) {
        place_window(state, end, fetched);
        place_mamba(state, end, fetched);
    }
    release_hold(state, receipt);
    HostInserted& outcome = fetched.outcome;
    outcome.dropped_pages = fetched.payloads[FULL] - outcome.placed_pages - outcome.refilled_pages -
                            outcome.present_pages;
    assert(outcome.dropped_pages >= 0);
}

// Free the slots that no placement took.
void release_rest(State& state, const Fetched& fetched) {
    for (const Component component : ALL_COMPONENTS) {
        std::vector<bool> taken(static_cast<size_t>((*fetched.filled)[component].slots()));
        for (const Placement& placement : fetched.outcome.placements) {
            if (placement.component != component) continue;
            std::fill_n(taken.begin() + placement.first, placement.slots.slots(), true);
        }
        Runs rest;
        RunReader given((*fetched.filled)[component]);
        for (const bool is_taken : taken) {
            const Runs one = given.next(1);
            if (!is_taken) rest.append(one);
        }
        release(state, component, CPU, rest);
    }
}

}  // namespace

HostInserted insert_host(State& state, const Key& key, int64_t start_pages,
                         const Counts& payloads) {
    const Path path = walk(state, key);
    check(state, key, start_pages, payloads, walked_pages(path));
    Fetched fetched{payloads, start_pages, key.pages - payloads[SWA], state.tick(), {}};
    place_all(state, key, path, fetched);
    return std::move(fetched.outcome);
}

HostInserted commit_host(State& state, const Key& key, int64_t start_pages,
                         const SlotLists& slots) {
    Counts payloads;
    for (const Component component : ALL_COMPONENTS) {
        payloads[component] = slots[component].slots();
    }
    const Path path = walk(state, key);
    check(state, key, start_pages, payloads, walked_pages(path));
    Handover handover(state, slots, CPU);
    handover.keep();
    Fetched fetched{payloads, start_pages, key.pages - payloads[SWA], state.tick(), {}, &slots};
    place_all(state, key, path, fetched);
    release_rest(state, fetched);
    return std::move(fetched.outcome);
}

HostSlots host_slots(State& state, const Key& key) {
    HostSlots found;
    const auto here = [](const Runs& slots, const Stop& stop) {
        return RunReader(slots).next(stop.shared);
    };
    for (const Stop& stop : walk(state, key)) {
        const Node* node = stop.node;
        if (!node->data[FULL].resident(CPU)) break;
        found.slots[FULL].append(here(node->data[FULL].slots(CPU), stop));
        found.pages = node->start + stop.shared;
        if (node->data[SWA].resident(CPU)) {
            found.slots[SWA].append(here(node->data[SWA].slots(CPU), stop));
        } else {
            found.slots[SWA].clear();
        }
        const bool at_end = stop.shared == node->pages && node->data[MAMBA].resident(CPU);
        found.slots[MAMBA] = at_end ? node->data[MAMBA].slots(CPU) : Runs();
    }
    return found;
}

}  // namespace kvcanon
