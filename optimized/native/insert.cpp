#include "insert.hpp"

#include <algorithm>
#include <cassert>
#include <functional>

#include "backup.hpp"
#include "emit.hpp"
#include "errors.hpp"
#include "recency.hpp"
#include "tree.hpp"

namespace kvcanon {

namespace {

// Incoming slots by page of the key, and what happened to them. They are read front to back.
class Incoming {
  public:
    Incoming(State& state, const SlotLists& slots, int64_t key_pages, int64_t start_pages,
             Inserted& outcome)
        : full_from(start_pages),
          swa_from(key_pages - slots[SWA].slots()),
          state_(state),
          full_(slots[FULL]),
          swa_(slots[SWA]),
          outcome_(outcome) {}

    // The slots of the next pages up to `end`.
    Runs full(int64_t begin, int64_t end) { return full_.next(static_cast<int32_t>(end - begin)); }
    Runs swa(int64_t begin, int64_t end) { return swa_.next(static_cast<int32_t>(end - begin)); }

    void adopt(Node* node, Component component, Runs slots) {
        outcome_.adopted[component] += slots.slots();
        place(state_, node, component, GPU, std::move(slots));
    }

    void free(Component component, const Runs& slots) {
        outcome_.freed[component] += slots.slots();
        release(state_, component, GPU, slots);
    }

    // The first page with an incoming slot.
    const int64_t full_from, swa_from;

  private:
    State& state_;
    RunReader full_, swa_;
    Inserted& outcome_;
};

std::string pages_words(const char* verb, int64_t number, const char* rest, int64_t pages) {
    return std::string(verb) + " " + std::to_string(number) + rest + std::to_string(pages) +
           " pages";
}

// Refuse states without a page of the key, and pages that are not in order.
void check_states(const Key& key, const SlotLists& slots, const StatePages& pages) {
    if (pages.empty()) {
        if (slots[MAMBA].slots() <= std::min(1, key.pages)) return;
        throw BadArgument("slots.mamba",
                          "holds the one state at the end of a key that is not empty; name the "
                          "pages of several in state_pages");
    }
    if (static_cast<int64_t>(pages.size()) != slots[MAMBA].slots()) {
        throw BadArgument("state_pages", "has " + std::to_string(pages.size()) + " pages for " +
                                             std::to_string(slots[MAMBA].slots()) + " states");
    }
    const bool ascending =
        std::adjacent_find(pages.begin(), pages.end(), std::greater_equal<>()) == pages.end();
    if (!ascending || pages.front() < 1 || pages.back() > key.pages) {
        throw BadArgument("state_pages",
                          "is not made of ascending pages from 1 to " + std::to_string(key.pages));
    }
}

void check_call(const Key& key, int64_t start, const SlotLists& slots, int64_t counted) {
    if (start < 0 || start > key.pages) {
        throw BadArgument("start_pages", pages_words("is", start, "; the key has ", key.pages));
    }
    if (counted < 0 || counted > key.pages) {
        throw BadArgument("counted_pages", pages_words("is", counted, "; the key has ", key.pages));
    }
    if (slots[FULL].slots() != key.pages - start) {
        throw BadArgument("slots.full", "has " + std::to_string(slots[FULL].slots()) +
                                            " slots for pages " + std::to_string(start) + ".." +
                                            std::to_string(key.pages) + " of the key");
    }
    if (slots[SWA].slots() > slots[FULL].slots()) {
        throw BadArgument("slots.swa", "has more slots than pages are handed over");
    }
}

[[noreturn]] void refuse_pair(Slot full, Slot paired, Slot expected) {
    const auto word = [](Slot slot) { return slot < 0 ? "None" : std::to_string(slot); };
    throw BadArgument("slots.swa",
                      "full slot " + std::to_string(full) + " is paired with window slot " +
                          word(paired) + ", but " + word(expected) +
                          " is handed over for its page; free the one or hand it over");
}

// Check that each window slot comes with the full slot that it is paired with, and that none is
// missing.
void check_pairs(const State& state, const SlotLists& slots) {
    if (!state.config.pairs_slots()) return;
    RunReader full(slots[FULL]);
    for (const Run run : full.next(slots[FULL].slots() - slots[SWA].slots())) {
        const Slot* partners = state.swa_of_full.data() + run.begin;
        const int32_t found = first_paired(partners, 0, run.size);
        if (found != run.size) refuse_pair(run.begin + found, partners[found], -1);
    }
    for (const Run run : slots[SWA]) {
        Slot expected = run.begin;
        for (const Run part : full.next(run.size)) {
            const Slot* partners = state.swa_of_full.data() + part.begin;
            Slot differs = 0;
            for (int32_t i = 0; i < part.size; ++i) differs |= partners[i] ^ (expected + i);
            if (differs != 0) {
                int32_t at = 0;
                while (partners[at] == expected + at) ++at;
                refuse_pair(part.begin + at, partners[at], expected + at);
            }
            expected += part.size;
        }
    }
}

// How many leading pages of the walked path have full data on the device.
int32_t present_pages(const Path& path) {
    int32_t present = 0;
    for (const Stop& stop : path) {
        if (!stop.node->data[FULL].resident(GPU)) break;
        present = stop.node->start + stop.shared;
    }
    return present;
}

// Refuse a path on which pages before `start` are missing, or any data is still being loaded.
void check_path(const Path& path, int64_t start, int32_t present) {
    if (present < start) throw PrefixNotCached(start, present);
    for (const Stop& stop : path) {
        for (const Component component : ALL_COMPONENTS) {
            const Transfer* filling = stop.node->data[component].filling[GPU];
            if (filling != nullptr) throw TransferPending(filling->transfer_id);
        }
    }
}

// Heal a tombstone from page `begin` on; its full slots stay, locked or not.
void merge_window(State& state, Node* node, int64_t begin, Incoming& incoming, uint64_t tick) {
    if (begin >= node->end() || !state.config.swa()) return;
    Runs swa = incoming.swa(begin, node->end());
    Data& data = node->data[SWA];
    if (data.on(GPU)) {
        incoming.free(SWA, swa);
        return;
    }
    if (begin > node->start) cut(state, node, static_cast<int32_t>(begin) - node->start);
    if (!data.on(CPU)) record_first_use(state, node, SWA, tick);
    incoming.adopt(node, SWA, std::move(swa));
}

// Give a node on the path the incoming slots of data that it lacks, and free the others.
void merge(State& state, Node* node, Incoming& incoming, uint64_t tick) {
    const int64_t begin = std::max<int64_t>(node->start, incoming.full_from);
    if (begin >= node->end()) return;
    Runs full = incoming.full(begin, node->end());
    if (node->data[FULL].on(GPU)) {
        incoming.free(FULL, full);
    } else {
        incoming.adopt(node, FULL, std::move(full));
        emit_stored(state, node, GPU);
    }
    merge_window(state, node, std::max(begin, incoming.swa_from), incoming, tick);
}

// Give a new leaf its slots, and cut it so that window data ends in a node of one window.
void fill_leaf(State& state, Node* leaf, Incoming& incoming, uint64_t tick) {
    incoming.adopt(leaf, FULL, incoming.full(leaf->start, leaf->end()));
    emit_stored(state, leaf, GPU);
    if (!state.config.swa() || incoming.swa_from >= leaf->end()) return;
    if (leaf->start < incoming.swa_from) {
        cut(state, leaf, static_cast<int32_t>(incoming.swa_from) - leaf->start);
    }
    record_first_use(state, leaf, SWA, tick);
    incoming.adopt(leaf, SWA, incoming.swa(leaf->start, leaf->end()));
    const int64_t window_pages = state.config.window_pages();
    if (leaf->pages > window_pages) {
        cut(state, leaf, leaf->pages - static_cast<int32_t>(window_pages));
    }
}

// Keep a mamba state if the node at whose end it is has none.
void attach_state(State& state, Node* node, Runs slot, Incoming& incoming, uint64_t tick) {
    Data& data = node->data[MAMBA];
    if (data.on(GPU)) {
        incoming.free(MAMBA, slot);
        return;
    }
    if (!data.on(CPU)) record_first_use(state, node, MAMBA, tick);
    incoming.adopt(node, MAMBA, std::move(slot));
}

// Keep the mamba states of a path that ends with `end`, from there up: the last one first.
void attach_states(State& state, Node* end, const Runs& states, const StatePages& pages,
                   Incoming& incoming, uint64_t tick) {
    if (pages.empty()) {
        if (states) attach_state(state, end, states, incoming, tick);
        return;
    }
    std::vector<Slot> slots;
    for (const Run run : states) {
        for (int32_t i = 0; i < run.size; ++i) slots.push_back(run.begin + i);
    }
    Node* node = end;
    for (size_t at = pages.size(); at-- > 0;) {
        while (node->start >= pages[at]) node = node->parent;
        if (node->end() > pages[at]) {
            node = cut(state, node, static_cast<int32_t>(pages[at]) - node->start);
        }
        Runs slot;
        slot.append({slots[at], 1});
        attach_state(state, node, std::move(slot), incoming, tick);
    }
}

// Back up the path down to its deepest node that was hit often enough.
void back_up_hit_nodes(State& state, Node* end, Inserted& outcome) {
    const int64_t threshold = state.config.backup_hits();
    if (threshold == 0) return;
    Node* node = end;
    while (node->parent != nullptr && node->hit_count < threshold) node = node->parent;
    if (node->parent == nullptr) return;
    if (state.config.caller_copies) {
        for (Node* each : backup_chain(state, node)) {
            if (!missing(state, each).empty()) outcome.wanted.push_back(each);
        }
    } else {
        outcome.backups = back_up(state, node);
    }
}

}  // namespace

Inserted insert(State& state, const Key& key, int64_t start_pages, const SlotLists& slots,
                int64_t counted_pages, int64_t priority, const StatePages& state_pages) {
    return insert_along(state, key, walk_for_use(state, key), start_pages, slots, counted_pages,
                        priority, state_pages);
}

Inserted insert_along(State& state, const Key& key, const Path& path, int64_t start_pages,
                      const SlotLists& slots, int64_t counted_pages, int64_t priority,
                      const StatePages& state_pages) {
    check_call(key, start_pages, slots, counted_pages);
    check_states(key, slots, state_pages);
    Handover handover(state, slots);
    check_pairs(state, slots);
    Inserted outcome;
    outcome.present_pages = present_pages(path);
    check_path(path, start_pages, outcome.present_pages);
    handover.keep();

    Incoming incoming(state, slots, key.pages, start_pages, outcome);
    const uint64_t tick = state.tick();
    Node* end = state.root;
    if (!path.empty() && path.front().node->start > incoming.full_from) {
        // The nodes above have full data, and there is no other.
        incoming.free(FULL, incoming.full(incoming.full_from, path.front().node->start));
    }
    for (const Stop& stop : path) {
        end = stop.shared == stop.node->pages ? stop.node : cut(state, stop.node, stop.shared);
        merge(state, end, incoming, tick);
    }
    if (end->end() < key.pages) {
        end = add_leaf(state, end, key, key.pages, tick, priority);
        fill_leaf(state, end, incoming, tick);
    }
    attach_states(state, end, slots[MAMBA], state_pages, incoming, tick);
    assert(end->end() == key.pages);
    assert(std::all_of(std::begin(ALL_COMPONENTS), std::end(ALL_COMPONENTS), [&](Component each) {
        return outcome.adopted[each] + outcome.freed[each] == slots[each].slots();
    }));

    record_insert(state, end, tick, counted_pages, priority);
    outcome.end = end;
    back_up_hit_nodes(state, end, outcome);
    outcome.backup_declined_pages = unbacked_pages(state, end);
    ++state.counters.inserts;
    state.counters.inserted_pages += static_cast<uint64_t>(outcome.adopted[FULL]);
    state.counters.duplicate_pages += static_cast<uint64_t>(outcome.freed[FULL]);
    state.counters.declined_backup_pages += static_cast<uint64_t>(outcome.backup_declined_pages);
    return outcome;
}

}  // namespace kvcanon
