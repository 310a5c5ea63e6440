// Moves of data by a caller that copies itself: what leaves, what is copied, what comes back.
//
// The caller copies between two calls, so that each call is one step: the tree names a victim, the
// caller copies it, and the tree lets it go. Slots that are given here count as filled at once; the
// caller holds the nodes until its copy has ended.
#pragma once

#include "nodes.hpp"
#include "slots.hpp"

namespace kvcanon {

struct EvictStep {
    // The last node that left, or lost a component; 0 where nothing more can leave.
    uint64_t node = 0;
    // Whether the caller must copy it first, and then call `evict_node`. Nothing has changed then.
    bool copy_first = false;
    // Whether that node leaves the device as a whole.
    bool whole = false;
    // Whether it must be copied first, and the host lacks its full data.
    bool unbacked = false;
    // The victims after it that are copied with it (`victims_together`).
    std::vector<uint64_t> with_it;
    // Slots that they would need on the host.
    Counts lacks;
    // Full slots that left the device and have no host copy.
    int64_t lost = 0;
    Journal journal;
};

// Evict victims of a component from the device until so many of its slots came free, or none is
// left, or the next one must be copied first. One that must be is named where it is the first; and
// if they are copied `together`, and it lacks this component, others that are needed as well. Of
// full data none is: who leaves next depends on who has left.
EvictStep evict_step(State& state, Component component, int64_t enough, bool together = false);

// Evict a node: as a whole if it is a leaf, otherwise one component. Throws: BadArgument where the
// node is locked or has no such data.
EvictStep evict_node(State& state, Node* node, Component component);

// Evict from the host until so many slots of a component came free; returns what did.
Journal evict_host_nodes(State& state, Component component, int64_t slots);

// Room that was made on the host.
struct HostRoom {
    // Slots that came free, as in a journal.
    Runs freed[COMPONENTS][MEDIA];
    // Of each eviction that freed full slots there, the first and how many there were.
    std::vector<int64_t> reclaimed;
    // Whether all that was wanted is free.
    bool fits = true;
    // For how many nodes there is room, of those that it was made for.
    size_t nodes = 0;
};

// Evict from the host until so many slots are free there, of which the caller has some already.
// Stops at the first pool that stays short: no copy needs what others would lose.
HostRoom make_host_room(State& state, const Counts& wanted, const Counts& free);

// The same for a copy of what nodes lack on the host, of components with a pool there: for one node
// after the other, as for copies of each. One that has room keeps it until the end. A copy either
// `locks` its nodes, or only what they have on the host must stay.
HostRoom make_host_room_for(State& state, const std::vector<Node*>& nodes,
                            const bool (&pools)[COMPONENTS], const Counts& free, bool locks);

// Slots of some nodes, by component, in the order of the nodes.
struct NodeSlots {
    Runs of[COMPONENTS];
};

// Slots of several nodes; `paired` are the full slots of the pages of window slots.
struct PairedSlots {
    NodeSlots slots;
    Runs paired;
};

// The device slots of what nodes have there and not on the host.
PairedSlots slots_to_back_up(const State& state, const std::vector<Node*>& nodes);

struct HostCopied {
    NodeSlots slots;
    // The nodes that had no full data on the host.
    std::vector<uint64_t> stored;
};

// Give nodes host slots for the components that they lack there, all or none; `on_slots` is told of
// them first. Throws: BadArgument, OutOfSlots, and what `on_slots` throws.
HostCopied add_host_copy(State& state, const std::vector<Node*>& nodes,
                         const bool (&wanted)[COMPONENTS], const OnSlots& on_slots = {});

// The host slots that a load of the path to a node reads, root first.
NodeSlots slots_to_load(const State& state, Node* end);

// Give the nodes device slots for these parts, and emit the stores of full data; `on_slots` is told
// of them first. Throws: OutOfSlots, and what `on_slots` throws.
PairedSlots add_device_copy(State& state, Node* end, const bool (&wanted)[COMPONENTS],
                            const OnSlots& on_slots = {});

// Give a node device slots of a component that it lacks. Throws: BadArgument, OutOfSlots.
Runs add_device_data(State& state, Node* node, Component component);

// Change when data is copied to the host: when it leaves the device, or when it was used often
// enough. Throws: BadArgument where there is no host tier, or a host copy would lack one above it.
void set_write_back(State& state, bool write_back);

}  // namespace kvcanon
