#include "slots.hpp"

#include <algorithm>
#include <cassert>

#include "errors.hpp"
#include "invariants.hpp"
#include "tree.hpp"
#include "victims.hpp"

namespace kvcanon {

namespace {

[[noreturn]] void refuse_component(Component component, const char* what) {
    throw BadArgument(name_of(component), std::string("is no component of this cache; ") + what);
}

// Raise the error for slots that a request does not hold, or that are there twice.
[[noreturn]] void refuse_slots(State& state, Component component, Medium medium,
                               const Runs& slots) {
    std::vector<Slot> each(static_cast<size_t>(slots.slots()));
    expand(slots, each.data());
    std::vector<Slot> sorted = each;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
        throw BadArgument(name_of(component), "names a slot twice; hand over each slot once");
    }
    const auto wrong = std::find_if(each.begin(), each.end(), [&](Slot slot) {
        return !holds_slot(state, component, medium, slot);
    });
    throw SlotNotHeld(pool_name(component, medium), *wrong);
}

// Whether a client holds every slot of the run.
bool holds_run(State& state, Component component, Medium medium, Run run) {
    return run.begin >= state.config.padding(component, medium) &&
           state.pool(component, medium).held.contains(run);
}

// Check the counts of slots that a client asks for.
void check_asked(const State& state, const Counts& counts, Medium medium) {
    for (const Component component : ALL_COMPONENTS) {
        if (counts[component] < 0) {
            throw BadArgument(name_of(component), std::to_string(counts[component]) +
                                                      " slots asked; ask for 0 or more");
        }
        if (counts[component] != 0 && !state.config.has(component)) {
            refuse_component(component, "ask for 0 slots");
        }
    }
    if (medium == GPU && counts[SWA] > counts[FULL]) {
        throw BadArgument("swa", std::to_string(counts[SWA]) + " slots asked for " +
                                     std::to_string(counts[FULL]) + " pages of full data");
    }
}

// Throws: OutOfSlots.
void require_free(const State& state, const Counts& counts, Medium medium) {
    for (const Component component : ALL_COMPONENTS) {
        const int64_t free = state.free_slots(component, medium);
        if (free < counts[component]) {
            throw OutOfSlots(pool_name(component, medium), counts[component], free);
        }
    }
}

// Do a step of an allocation. If memory runs out, the taken slots come free again.
template <typename Step>
void undone_on_failure(State& state, const SlotLists& taken, Medium medium, Step step) {
    try {
        step();
    } catch (...) {
        for (const Component component : ALL_COMPONENTS) {
            release(state, component, medium, taken[component]);
        }
        state.changed = false;
        throw;
    }
}

// Give taken slots to a client.
void hold(State& state, const SlotLists& taken, Medium medium) {
    if (!state.config.lends_slots()) return;
    for (const Component component : ALL_COMPONENTS) {
        state.pool(component, medium).held.add(taken[component]);
    }
}

// End the pairings of slots. Slots without a pairing are skipped fast: most full slots, and all new
// slots of a pool.
void unpair(std::vector<Slot>& ours, std::vector<Slot>& theirs, const Runs& slots) {
    for (const Run run : slots) {
        Slot* partners = ours.data() + run.begin;
        for (int32_t at = first_paired(partners, 0, run.size); at < run.size;) {
            // Slots with a partner are usually consecutive.
            for (; at < run.size && partners[at] >= 0; ++at) {
                theirs[static_cast<size_t>(partners[at])] = -1;
                partners[at] = -1;
            }
            at = first_paired(partners, at, run.size);
        }
    }
}

// Free host slots but those that the store reads, which are a client's until `end_read`.
void release_unread(State& state, const Runs& slots) {
    Pool& pool = state.pool(FULL, CPU);
    for (const Run run : slots) {
        for (int32_t at = 0; at < run.size; ++at) {
            const Run one{run.begin + at, 1};
            (state.read_by_store.contains(one) ? pool.held : pool.free).add(one);
        }
    }
}

// Write the slots of a node that come free into the journal.
void note_freed(State& state, const Node* node, Component component, Medium medium,
                const Runs& slots) {
    // Window data leaves a node before its full data.
    const bool by_full = component == SWA && medium == GPU;
    assert(!by_full || !slots || node->data[FULL].on(GPU));
    state.journal->freed[component][medium].append(by_full ? node->data[FULL].slots(GPU) : slots);
}

}  // namespace

std::string pool_name(Component component, Medium medium) {
    return std::string(name_of(component)) + " on " + name_of(medium);
}

SlotLists take_free(State& state, const Counts& counts, Medium medium, const OnSlots& on_taken) {
    require_free(state, counts, medium);
    SlotLists taken;
    undone_on_failure(state, taken, medium, [&] {
        for (const Component component : ALL_COMPONENTS) {
            SlotSet& free = state.pool(component, medium).free;
            taken[component] = free.take(static_cast<int32_t>(counts[component]));
        }
        if (on_taken) on_taken(taken);
    });
    return taken;
}

SlotLists allocate(State& state, const Counts& counts) {
    check_asked(state, counts, GPU);
    SlotLists taken = take_free(state, counts, GPU);
    if (counts[SWA] != 0) {
        RunReader full(taken[FULL]);
        full.skip(static_cast<int32_t>(counts[FULL] - counts[SWA]));
        undone_on_failure(state, taken, GPU, [&] {
            pair(state, full.next(static_cast<int32_t>(counts[SWA])), taken[SWA]);
        });
    }
    hold(state, taken, GPU);
    return taken;
}

SlotLists reserve_host(State& state, const Counts& counts) {
    if (!state.config.host_tier()) {
        throw BadArgument("reserve_host", "needs a host tier; choose a write policy");
    }
    check_asked(state, counts, CPU);
    const SlotLists taken = take_free(state, counts, CPU);
    hold(state, taken, CPU);
    return taken;
}

void take_back(State& state, const SlotLists& taken, Medium medium) {
    free_slots(state, taken, medium);
    state.changed = false;
}

bool holds_slot(State& state, Component component, Medium medium, int64_t slot) {
    return 0 <= slot && slot < state.config.capacity(component, medium) &&
           holds_run(state, component, medium, Run{static_cast<Slot>(slot), 1});
}

void free_slots(State& state, const SlotLists& slots, Medium medium) {
    Handover handover(state, slots, medium);
    handover.keep();
    for (const Component component : ALL_COMPONENTS)
        release(state, component, medium, slots[component]);
}

Handover::Handover(State& state, const SlotLists& slots, Medium medium)
    : state_(state), slots_(slots), medium_(medium) {
    for (const Component component : ALL_COMPONENTS) {
        const Runs& some = slots[component];
        if (some && !state.config.has(component)) {
            refuse_component(component, "hand over no slots");
        }
        if (!state.config.lends_slots()) continue;
        SlotSet& held = state.pool(component, medium).held;
        const Run* run = some.begin();
        // A slot that is listed twice is no longer held the second time.
        for (; run != some.end() && holds_run(state, component, medium, *run); ++run) {
            held.remove(*run);
        }
        if (run == some.end()) continue;
        for (const Run* each = some.begin(); each != run; ++each) held.add(*each);
        for (int before = 0; before < component; ++before) {
            state.pool(static_cast<Component>(before), medium).held.add(slots[before]);
        }
        refuse_slots(state, component, medium, some);
    }
}

Handover::~Handover() {
    if (kept_ || !state_.config.lends_slots()) return;
    for (const Component component : ALL_COMPONENTS) {
        state_.pool(component, medium_).held.add(slots_[component]);
    }
}

void release(State& state, Component component, Medium medium, const Runs& slots) {
    assert(!any_has_owner(state.pool(component, medium), slots));
    state.changed = true;
    if (medium == GPU && state.config.pairs_slots()) {
        if (component == FULL) unpair(state.swa_of_full, state.full_of_swa, slots);
        if (component == SWA) unpair(state.full_of_swa, state.swa_of_full, slots);
    }
    Pool& pool = state.pool(component, medium);
    if (component == FULL && medium == CPU && state.read_by_store.size() != 0) {
        release_unread(state, slots);
    } else {
        pool.free.add(slots);
    }
    assert(is_possible(pool));
}

void begin_read(State& state, const Runs& slots) {
    state.changed = true;
    Pool& pool = state.pool(FULL, CPU);
    state.read_by_store.add(slots);
    for (const Run run : slots) {
        for (int32_t at = 0; at < run.size; ++at) {
            const Run one{run.begin + at, 1};
            if (!pool.free.contains(one)) continue;
            pool.free.remove(one);
            pool.held.add(one);
        }
    }
    assert(is_possible(pool));
}

void end_read(State& state, const Runs& slots) {
    state.changed = true;
    Pool& pool = state.pool(FULL, CPU);
    for (const Run run : slots) {
        for (int32_t at = 0; at < run.size; ++at) {
            const Run one{run.begin + at, 1};
            state.read_by_store.remove(one);
            if (!pool.held.contains(one)) continue;
            pool.held.remove(one);
            pool.free.add(one);
        }
    }
    assert(is_possible(pool));
}

int32_t first_paired(const Slot* partners, int32_t from, int32_t size) {
    constexpr int32_t BLOCK = 64;
    // Numbers are all negative if and only if their bitwise AND is negative.
    while (from + BLOCK <= size) {
        Slot common = -1;
        for (int32_t i = 0; i < BLOCK; ++i) common &= partners[from + i];
        if (common >= 0) break;
        from += BLOCK;
    }
    while (from < size && partners[from] < 0) ++from;
    return from;
}

void pair(State& state, const Runs& full, const Runs& swa) {
    assert(full.slots() == swa.slots());
    if (!state.config.pairs_slots()) return;
    unpair(state.full_of_swa, state.swa_of_full, swa);
    RunReader partners(full);
    for (const Run run : swa) {
        Slot swa_slot = run.begin;
        for (const Run part : partners.next(run.size)) {
            Slot* swa_of_full = state.swa_of_full.data() + part.begin;
            Slot* full_of_swa = state.full_of_swa.data() + swa_slot;
            for (int32_t i = 0; i < part.size; ++i) swa_of_full[i] = swa_slot + i;
            for (int32_t i = 0; i < part.size; ++i) full_of_swa[i] = part.begin + i;
            swa_slot += part.size;
        }
    }
}

void place(State& state, Node* node, Component component, Medium medium, Runs slots,
           Transfer* filled_by) {
    Data& data = node->data[component];
    Pool& pool = state.pool(component, medium);
    assert(node->parent != nullptr && state.config.has(component));
    assert(!data.on(medium) && slots.slots() == slots_due(node, component));
    assert(!any_has_owner(pool, slots));
    assert(filled_by == nullptr || filled_by->target() == medium);
    state.changed = true;
    data.filling[medium] = filled_by;
    update(state, node, [&](QueuedWriter its) { its.slots(component, medium) = std::move(slots); });
    if (state.journal != nullptr) {
        state.journal->placements.push_back(
            {node, component, medium, node->start, node->pages, data.slots(medium)});
    }
    pool.owned_slots += data.slots(medium).slots();
    if (node->protects(component, medium)) pool.protected_slots += data.slots(medium).slots();
    if (medium == GPU) {
        if (component == SWA) pair(state, node->data[FULL].slots(GPU), data.slots(GPU));
        if (component == FULL) {
            update(state, node->parent, [](QueuedWriter its) { ++its[&Node::device_children]; });
        }
    }
    assert(is_possible(pool));
}

Runs take(State& state, Node* node, Component component, Medium medium) {
    Data& data = node->data[component];
    if (!data.on(medium)) return Runs();
    state.changed = true;
    data.filling[medium] = nullptr;
    Runs slots = update(state, node, [&](QueuedWriter its) {
        return std::exchange(its.slots(component, medium), Runs());
    });
    Pool& pool = state.pool(component, medium);
    pool.owned_slots -= slots.slots();
    if (node->protects(component, medium)) pool.protected_slots -= slots.slots();
    if (medium == GPU && component == FULL) {
        assert(node->parent->device_children > 0);
        update(state, node->parent, [](QueuedWriter its) { --its[&Node::device_children]; });
    }
    assert(!data.on(medium) && is_possible(pool));
    return slots;
}

void drop(State& state, Node* node, Component component, Medium medium) {
    const Runs slots = take(state, node, component, medium);
    if (state.journal != nullptr && slots) note_freed(state, node, component, medium, slots);
    release(state, component, medium, slots);
}

Counts free_slot_counts(const State& state, Medium medium) {
    Counts counts;
    for (const Component component : ALL_COMPONENTS)
        counts[component] = state.free_slots(component, medium);
    return counts;
}

Counts shortage(const Counts& needed, const Counts& free) {
    Counts lacking;
    for (const Component component : ALL_COMPONENTS) {
        lacking[component] = std::max<int64_t>(0, needed[component] - free[component]);
    }
    return lacking;
}

void free_tree(State& state) {
    for (Node* node : all_nodes(state)) {
        if (node->parent == nullptr) continue;
        for (const Component component : ALL_COMPONENTS) {
            for (const Medium medium : {GPU, CPU}) drop(state, node, component, medium);
        }
    }
}

}  // namespace kvcanon
