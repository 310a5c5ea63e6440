#include "lock.hpp"

#include <algorithm>
#include <cassert>

#include "errors.hpp"
#include "invariants.hpp"
#include "tree.hpp"
#include "victims.hpp"

namespace kvcanon {

namespace {

// Count a lock of a node's data; returns whether the data became locked, or free.
bool count(State& state, Node* node, Component component, int32_t change) {
    const Data& data = node->data[component];
    const bool was_locked = data.lock_refs != 0;
    update(state, node, [&](QueuedWriter its) { its.of(component, &Data::lock_refs) += change; });
    assert(data.lock_refs >= 0);
    if (was_locked == (data.lock_refs != 0)) return false;
    for (const Medium medium : {GPU, CPU}) {
        if (medium == CPU && data.host_holds != 0) continue;
        const int64_t slots = data.slots(medium).slots();
        state.pool(component, medium).protected_slots += was_locked ? -slots : slots;
    }
    assert(is_possible(state.pool(component, GPU)) && is_possible(state.pool(component, CPU)));
    return true;
}

// A node counts the holds that end at it and its locked children, so that a hold below others, or a
// release, ends at the first node that stays as locked as it was.
void count_full(State& state, const Hold& held, int32_t change) {
    Node* node = held.node;
    while (node->parent != nullptr && count(state, node, FULL, change)) node = node->parent;
}

void count_window(State& state, const Hold& held, int32_t change) {
    if (held.window_from >= 0) {
        for (Node* node = held.node; node->parent != nullptr; node = node->parent) {
            if (node->start < held.window_from) {
                // The hold cut the path there, and cuts are never undone.
                assert(node->end() <= held.window_from);
                break;
            }
            count(state, node, SWA, change);
        }
    }
    if (held.mamba_held && held.node->parent != nullptr) {
        count(state, held.node, MAMBA, change);
    }
}

void release_window(State& state, Hold& held) {
    state.changed = true;
    count_window(state, held, -1);
    held.window_from = -1;
    held.mamba_held = false;
}

}  // namespace

Hold& open_hold(State& state, uint64_t receipt) {
    const auto found = state.holds.find(receipt);
    if (found == state.holds.end() || found->second.transfer != nullptr) {
        throw ReceiptSpent(receipt);
    }
    return found->second;
}

uint64_t lock(State& state, const Key& key) {
    Node* end = node_ending_at(state, require(state, key), key.pages);
    return hold(state, end, held_window_start(state, end)).receipt;
}

uint64_t lock_found(State& state, const Matched& found, int32_t pages) {
    // A reset leaves another root, where no page ends as well.
    Node* end = found.prefix_pages == 0 ? state.root : state.arena.find(found.end_handle);
    if (end == nullptr) throw PrefixNotCached(pages, 0);
    while (end->parent != nullptr && end->start >= pages) end = end->parent;
    if (end->end() > pages) end = cut(state, end, pages - end->start);
    return hold(state, end, held_window_start(state, end)).receipt;
}

void unlock(State& state, uint64_t receipt) {
    open_hold(state, receipt);
    release_hold(state, receipt);
}

void unlock_window(State& state, uint64_t receipt) {
    release_window(state, open_hold(state, receipt));
}

void release_state(State& state, uint64_t receipt) {
    Hold& held = open_hold(state, receipt);
    if (!held.mamba_held) return;
    state.changed = true;
    if (held.node->parent != nullptr) count(state, held.node, MAMBA, -1);
    held.mamba_held = false;
}

int64_t window_start(const State& state, int64_t end_pages) {
    return std::max<int64_t>(0, end_pages - state.config.window_pages());
}

int64_t held_window_start(const State& state, const Node* end) {
    return state.config.swa() ? window_start(state, end->end()) : -1;
}

Hold& hold(State& state, Node* end, int64_t window_from) {
    assert(window_from < 0 || state.config.swa());
    if (window_from >= 0) cut_path_at(state, end, window_from);
    const uint64_t receipt = state.serial << 40 | state.new_id();
    // The newest receipt has the largest number.
    const Hold made{receipt, end, window_from, state.config.mamba, nullptr};
    Hold& opened = state.holds.emplace_hint(state.holds.end(), receipt, made)->second;
    count_full(state, opened, 1);
    count_window(state, opened, 1);
    assert(end->parent == nullptr || end->locked());
    return opened;
}

void release_hold(State& state, uint64_t receipt) {
    const auto found = state.holds.find(receipt);
    assert(found != state.holds.end());
    Hold held = found->second;
    state.changed = true;
    state.holds.erase(found);
    release_window(state, held);
    count_full(state, held, -1);
}

}  // namespace kvcanon
