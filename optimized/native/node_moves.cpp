#include "node_moves.hpp"

#include <algorithm>

#include "backup.hpp"
#include "departures.hpp"
#include "emit.hpp"
#include "errors.hpp"
#include "evict.hpp"
#include "host_hold.hpp"
#include "lock.hpp"
#include "reset.hpp"
#include "tree.hpp"
#include "victims.hpp"
#include "victims_together.hpp"

namespace kvcanon {

namespace {

// Leave parts of other components out.
void keep_wanted(std::vector<Part>& parts, const bool (&wanted)[COMPONENTS]) {
    parts.erase(std::remove_if(parts.begin(), parts.end(),
                               [&](const Part& part) { return !wanted[part.component]; }),
                parts.end());
}

// Check that the medium has, or gets, the full data of each part's page, and the pages before full
// data, where they must be there. Upper nodes come first, and full data before the other parts.
// Throws: BadArgument.
void require_whole(const State& state, const std::vector<Part>& parts, Medium to) {
    std::vector<const Node*> filled;
    const auto has_full = [&](const Node* node) {
        return node->data[FULL].on(to) ||
               std::find(filled.begin(), filled.end(), node) != filled.end();
    };
    const bool behind_others = to == GPU || state.config.backed_parents();
    for (const Part& part : parts) {
        const Node* node = part.node;
        if (part.component != FULL) {
            if (has_full(node)) continue;
            throw BadArgument("components", "leave out full data, which the medium lacks as well");
        }
        if (behind_others && node->parent->parent != nullptr && !has_full(node->parent)) {
            throw BadArgument("nodes", "have no copy of the pages before them there");
        }
        filled.push_back(node);
    }
}

NodeSlots slots_of(const std::vector<Part>& parts, Medium medium) {
    NodeSlots slots;
    for (const Part& part : parts) {
        slots.of[part.component].append(part.node->data[part.component].slots(medium));
    }
    return slots;
}

// The device slots of parts, and the full slots of the pages of window data.
PairedSlots paired(const std::vector<Part>& parts) {
    PairedSlots found{slots_of(parts, GPU), Runs()};
    for (const Part& part : parts) {
        if (part.component == SWA) found.paired.append(part.node->data[FULL].slots(GPU));
    }
    return found;
}

std::vector<Part> all_missing(const State& state, const std::vector<Node*>& nodes) {
    std::vector<Part> parts;
    for (Node* node : nodes) {
        for (const Part& part : missing(state, node)) parts.push_back(part);
    }
    return parts;
}

// Give parts slots on a medium, as many as they have on the other. Throws: OutOfSlots, and what
// `on_slots` throws.
void place_all(State& state, const std::vector<Part>& parts, Medium from, Medium to,
               const OnSlots& on_slots) {
    const SlotLists taken = take_free(state, counted(parts, from), to, on_slots);
    RunReader left[] = {RunReader(taken[FULL]), RunReader(taken[SWA]), RunReader(taken[MAMBA])};
    for (const Part& part : parts) {
        const int32_t slots = part.node->data[part.component].slots(from).slots();
        place(state, part.node, part.component, to, left[part.component].next(slots));
    }
}

bool waits_on_host(const Data& data) { return data.on(CPU) && !data.on(GPU); }

// The parts of a path that are on the host only and that its end needs, root first.
std::vector<Part> host_only_parts(const State& state, Node* end) {
    const int64_t window_from = held_window_start(state, end);
    std::vector<Part> parts;
    for (Node* node : path_to(end)) {
        if (waits_on_host(node->data[FULL])) parts.push_back({node, FULL});
        const bool in_window = window_from >= 0 && node->end() > window_from;
        if (in_window && waits_on_host(node->data[SWA])) parts.push_back({node, SWA});
        if (node == end && waits_on_host(node->data[MAMBA])) parts.push_back({node, MAMBA});
    }
    return parts;
}

// Evict a node from the device: as a whole if it is a leaf, otherwise one component.
void evict_one(State& state, Node* node, Component component, EvictStep& step) {
    step.node = handle_of(node);
    step.whole = is_device_leaf(node);
    if (step.whole && node->data[FULL].on(CPU)) {
        vacate(state, node, GPU);
    } else if (step.whole) {
        step.lost += node->pages;
        delete_leaf(state, node);
    } else {
        // The state is of no use without the window before it.
        if (component == SWA && node->data[MAMBA].on(GPU)) drop(state, node, MAMBA, GPU);
        drop(state, node, component, GPU);
    }
}

// Name victims that must be copied before the first of them leaves.
void name_copy(const Together& victims, EvictStep& step) {
    const Node* first = victims.nodes.front();
    step.node = handle_of(first);
    step.copy_first = true;
    step.whole = is_device_leaf(first);
    step.unbacked = !first->data[FULL].on(CPU);
    step.lacks = victims.lacks;
    for (size_t at = 1; at < victims.nodes.size(); ++at) {
        step.with_it.push_back(handle_of(victims.nodes[at]));
    }
}

// Keep what came free, and count it.
void finish(State& state, EvictStep& step, Journal& journal) {
    step.journal = std::move(journal);
    for (const Component each : ALL_COMPONENTS) {
        for (const Medium medium : {GPU, CPU}) {
            state.counters.evicted_slots[medium][each] +=
                static_cast<uint64_t>(step.journal.freed[each][medium].slots());
        }
    }
}

// Evict from the host until so many slots are free, of which the caller has some; returns whether
// they are.
bool free_on_host(State& state, const Counts& wanted, Counts& had, HostRoom& room) {
    for (const Component each : ALL_COMPONENTS) {
        if (wanted[each] <= had[each]) continue;
        const Journal done = evict_host_nodes(state, each, wanted[each] - had[each]);
        for (const Component freed : ALL_COMPONENTS) {
            had[freed] += done.freed[freed][CPU].slots();
            for (const Medium medium : {GPU, CPU}) {
                room.freed[freed][medium].append(done.freed[freed][medium]);
            }
        }
        if (const Runs& full = done.freed[FULL][CPU]) {
            room.reclaimed.push_back(full.begin()->begin);
            room.reclaimed.push_back(full.slots());
        }
        if (wanted[each] > had[each]) return false;
    }
    return true;
}

}  // namespace

EvictStep evict_step(State& state, Component component, int64_t enough, bool together) {
    EvictStep step;
    Journaled journaled(state);
    const Pool& pool = state.pool(component, GPU);
    const int64_t target = pool.owned_slots - enough;
    while (pool.owned_slots > target) {
        Node* node = next_victim(state, component, GPU);
        if (node == nullptr) break;
        if (state.config.writes_back()) {
            const Counts lacks = counted(missing(state, node), GPU);
            // Also what stays on the device, as the copy of any victim.
            if (lacks) {
                if (step.node != 0) break;
                const bool others = together && component != FULL && lacks[component] != 0;
                name_copy(
                    others ? victims_together(state, component, enough) : Together{{node}, lacks},
                    step);
                return step;
            }
        }
        // It would leave the tree.
        const Data& full = node->data[FULL];
        if (is_device_leaf(node) && !full.on(CPU) && full.host_holds != 0) break;
        evict_one(state, node, component, step);
    }
    finish(state, step, journaled.journal);
    return step;
}

EvictStep evict_node(State& state, Node* node, Component component) {
    if (!is_device_leaf(node) && (component == FULL || node->data[component].lock_refs != 0 ||
                                  !node->data[component].on(GPU))) {
        throw BadArgument("node", "cannot be evicted: it is locked, or not a leaf of the device");
    }
    if (is_device_leaf(node) && !node->data[FULL].on(CPU) && is_any_held(node)) {
        throw BadArgument("node", "cannot be evicted: a hold covers what the host has below it");
    }
    EvictStep step;
    Journaled journaled(state);
    evict_one(state, node, component, step);
    finish(state, step, journaled.journal);
    return step;
}

Journal evict_host_nodes(State& state, Component component, int64_t slots) {
    Counts counts;
    counts[component] = slots;
    check_counts(counts);
    Journaled journaled(state);
    evict_host(state, counts);
    return std::move(journaled.journal);
}

HostRoom make_host_room(State& state, const Counts& wanted, const Counts& free) {
    HostRoom room;
    Counts had = free;
    room.fits = free_on_host(state, wanted, had, room);
    return room;
}

HostRoom make_host_room_for(State& state, const std::vector<Node*>& nodes,
                            const bool (&pools)[COMPONENTS], const Counts& free, bool locks) {
    HostRoom room;
    Counts had = free;
    // If memory runs out the cache is unusable until all of it is forgotten, with these.
    std::vector<uint64_t> receipts;
    for (Node* node : nodes) {
        Counts lacks = counted(missing(state, node), GPU);
        for (const Component each : ALL_COMPONENTS) {
            if (!pools[each]) lacks[each] = 0;
        }
        room.fits = free_on_host(state, lacks, had, room);
        if (!room.fits) break;
        for (const Component each : ALL_COMPONENTS) had[each] -= lacks[each];
        if (locks) {
            // As a copy of the node alone: the window before it may go.
            receipts.push_back(hold(state, node, state.config.swa() ? node->start : -1).receipt);
        } else {
            keep_on_host(state, node);
        }
        ++room.nodes;
    }
    for (const uint64_t receipt : receipts) unlock(state, receipt);
    for (size_t at = 0; !locks && at < room.nodes; ++at) let_leave_host(state, nodes[at]);
    return room;
}

PairedSlots slots_to_back_up(const State& state, const std::vector<Node*>& nodes) {
    return paired(all_missing(state, nodes));
}

HostCopied add_host_copy(State& state, const std::vector<Node*>& nodes,
                         const bool (&wanted)[COMPONENTS], const OnSlots& on_slots) {
    std::vector<Part> parts = all_missing(state, nodes);
    keep_wanted(parts, wanted);
    require_whole(state, parts, CPU);
    place_all(state, parts, GPU, CPU, on_slots);
    HostCopied copied;
    copied.slots = slots_of(parts, CPU);
    for (const Part& part : parts) {
        if (part.component == FULL) copied.stored.push_back(handle_of(part.node));
    }
    return copied;
}

NodeSlots slots_to_load(const State& state, Node* end) {
    return slots_of(host_only_parts(state, end), CPU);
}

PairedSlots add_device_copy(State& state, Node* end, const bool (&wanted)[COMPONENTS],
                            const OnSlots& on_slots) {
    std::vector<Part> parts = host_only_parts(state, end);
    keep_wanted(parts, wanted);
    require_whole(state, parts, GPU);
    place_all(state, parts, CPU, GPU, on_slots);
    for (const Part& part : parts) {
        if (part.component == FULL) emit_stored(state, part.node, GPU);
    }
    return paired(parts);
}

Runs add_device_data(State& state, Node* node, Component component) {
    if (node->parent == nullptr || node->data[component].on(GPU)) {
        throw BadArgument("node", "is the root, or has " + pool_name(component, GPU));
    }
    if (!node->data[FULL].on(GPU)) {
        throw BadArgument("node", "has no full data on the device");
    }
    Counts counts;
    counts[component] = component == MAMBA ? 1 : node->pages;
    place(state, node, component, GPU, take_free(state, counts, GPU)[component]);
    return node->data[component].slots(GPU);
}

void set_write_back(State& state, bool write_back) {
    Config& config = state.config;
    if (!config.host_tier()) throw BadArgument("write_back", "needs a host tier");
    if (write_back == config.writes_back()) return;
    for (const Node* node : all_nodes(state)) {
        if (write_back || node->parent == nullptr || !node->data[FULL].on(CPU)) continue;
        if (node->parent->parent != nullptr && !node->parent->data[FULL].on(CPU)) {
            throw BadArgument("write_back",
                              "cannot end: the host has data without the data before");
        }
    }
    state.changed = true;
    config.write_policy = write_back ? WritePolicy::WRITE_BACK : WritePolicy::WRITE_THROUGH;
    rank_duplicates(state, write_back);
}

}  // namespace kvcanon
