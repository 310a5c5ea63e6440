// Slots and their owners: the free list, then a request, then a node, then the free list again.
//
// Attention finds a page's window slot through its full slot. This pairing begins when both are
// allocated, moves when a node takes over the window slot of a duplicate, and ends when the first
// of the two is freed.
#pragma once

#include <functional>

#include "state.hpp"

namespace kvcanon {

// Slots as they are handed over: in the order of their pages.
struct SlotLists {
    Runs of[COMPONENTS];

    Runs& operator[](int component) { return of[component]; }
    const Runs& operator[](int component) const { return of[component]; }
};

// Told of slots that were taken, before anything else changes. What it throws refuses the call.
using OnSlots = std::function<void(const SlotLists& slots)>;

// Take free slots that nobody owns yet, all or none. Throws: OutOfSlots, BadArgument, and what
// `on_taken` throws; they are free again then.
SlotLists take_free(State& state, const Counts& counts, Medium medium,
                    const OnSlots& on_taken = {});

// Take free device slots for a request, all or none. Throws: OutOfSlots, BadArgument.
SlotLists allocate(State& state, const Counts& counts);

// Take free host slots for a client that fills them itself, all or none. Throws: OutOfSlots,
// BadArgument.
SlotLists reserve_host(State& state, const Counts& counts);

// Give a client's slots on a medium back, all or none. Throws: SlotNotHeld, BadArgument.
void free_slots(State& state, const SlotLists& slots, Medium medium = GPU);

// Undo an allocation whose slots the caller cannot be given, as if it had been refused.
void take_back(State& state, const SlotLists& taken, Medium medium = GPU);

// Takes slots from a client, who must hold each of them. Gives them back when it goes out of scope,
// unless `keep` was called.
class Handover {
  public:
    // Throws: SlotNotHeld, BadArgument.
    Handover(State& state, const SlotLists& slots, Medium medium = GPU);
    Handover(const Handover&) = delete;
    Handover& operator=(const Handover&) = delete;
    ~Handover();
    void keep() { kept_ = true; }

  private:
    State& state_;
    const SlotLists& slots_;
    const Medium medium_;
    bool kept_ = false;
};

// Put slots into the free list, and end their pairings.
void release(State& state, Component component, Medium medium, const Runs& slots);

// The store begins to read host slots of full data. One that is free, or comes free before
// `end_read`, is given to nobody until then.
void begin_read(State& state, const Runs& slots);
void end_read(State& state, const Runs& slots);

// The index of the first slot that has a partner, from index `from` on; `size` where none has.
int32_t first_paired(const Slot* partners, int32_t from, int32_t size);

// Pair each window slot with its full slot, and with no other.
void pair(State& state, const Runs& full, const Runs& swa);

// Make a node the owner of slots that have no owner, filled now or later by a transfer.
void place(State& state, Node* node, Component component, Medium medium, Runs slots,
           Transfer* filled_by = nullptr);

// End a node's ownership of its slots in a pool; the slots have no owner then.
Runs take(State& state, Node* node, Component component, Medium medium);

// Free what a node has in a pool.
void drop(State& state, Node* node, Component component, Medium medium);

Counts free_slot_counts(const State& state, Medium medium);

// Whether a client holds this slot.
bool holds_slot(State& state, Component component, Medium medium, int64_t slot);

// How many slots each pool lacks of those needed from it.
Counts shortage(const Counts& needed, const Counts& free);

// Free everything that nodes own.
void free_tree(State& state);

// "full on GPU", as errors name a pool.
std::string pool_name(Component component, Medium medium);

}  // namespace kvcanon
