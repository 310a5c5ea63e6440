#include "reset.hpp"

#include "emit.hpp"
#include "errors.hpp"
#include "slots.hpp"
#include "tree.hpp"

namespace kvcanon {

namespace {

// All slots of a pool are free but those that clients hold, and its padding, which is held too.
void free_all_but_held(Pool& pool) {
    const int32_t capacity = pool.free.capacity();
    SlotSet free(capacity, pool.free.together());
    if (capacity != 0) free.add(Run{0, capacity});
    for (const Slot slot : pool.held.list()) free.remove(Run{slot, 1});
    pool.free = std::move(free);
    pool.owned_slots = pool.protected_slots = pool.leaving_slots = 0;
}

// What the store reads now is given to nobody until `end_read`, also where its node is gone.
void keep_read_slots(State& state) {
    SlotSet& held = state.pool(FULL, CPU).held;
    for (const Slot slot : state.read_by_store.list()) {
        if (!held.contains(slot)) held.add(Run{slot, 1});
    }
}

// End the pairs of slots unless requests hold both.
void unpair_all_but_held(State& state) {
    const SlotSet& full_held = state.pool(FULL, GPU).held;
    const SlotSet& swa_held = state.pool(SWA, GPU).held;
    const auto keep = [](std::vector<Slot>& ours, const std::vector<Slot>& theirs,
                         const SlotSet& held, const SlotSet& their_held) {
        for (size_t at = 0; at < ours.size(); ++at) {
            const auto slot = static_cast<Slot>(at);
            const Slot partner = ours[at];
            const bool held_pair = partner >= 0 && held.contains(slot) &&
                                   their_held.contains(partner) &&
                                   theirs[static_cast<size_t>(partner)] == slot;
            if (!held_pair) ours[at] = -1;
        }
    };
    keep(state.swa_of_full, state.full_of_swa, full_held, swa_held);
    keep(state.full_of_swa, state.swa_of_full, swa_held, full_held);
}

}  // namespace

void reset(State& state) {
    const size_t open = state.holds.size() + state.host_holds.size();
    if (open != 0) throw CacheBusy(static_cast<int64_t>(open));
    state.changed = true;
    free_tree(state);
    forget_tree(state);
    state.stored.clear();
    state.namespaces->forget_idle();
    emit_cleared(state);
}

void recover(State& state) {
    state.transfers.clear();
    state.arrived.clear();
    for (std::set<uint64_t>& in_flight : state.in_flight) in_flight.clear();
    state.holds.clear();
    state.host_holds.clear();
    // Nodes are dropped without a look at them: any of them may be half changed.
    state.arena.clear();
    state.root = nullptr;
    for (VictimQueue& queue : state.queues) queue = VictimQueue();
    state.children.clear();
    state.node_count = 0;
    keep_read_slots(state);
    for (const Component component : ALL_COMPONENTS) {
        for (const Medium medium : {GPU, CPU}) free_all_but_held(state.pool(component, medium));
    }
    unpair_all_but_held(state);
    forget_events(state);
    state.stored.clear();
    state.namespaces->forget_idle();
    state.root = state.arena.make();
    emit_cleared(state);
}

}  // namespace kvcanon
