#include "victims.hpp"

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

#include "tree.hpp"

namespace kvcanon {

namespace {

// The rank of a leaf under the policy; the smallest leaves first.
std::pair<int64_t, int64_t> rank(const State& state, const Node* node) {
    const auto access = static_cast<int64_t>(node->last_access);
    const auto created = static_cast<int64_t>(node->created);
    switch (state.config.eviction_policy) {
        case EvictionPolicy::LRU: return {0, access};
        case EvictionPolicy::LFU: return {node->hit_count, access};
        case EvictionPolicy::FIFO: return {0, created};
        case EvictionPolicy::MRU: return {0, -access};
        case EvictionPolicy::FILO: return {0, -created};
        case EvictionPolicy::SLRU: return {node->hit_count >= 2 ? 1 : 0, access};
        case EvictionPolicy::PRIORITY: return {node->priority, access};
    }
    return {0, access};
}

// Whether the device has all of a node's host copy, so that the copy is not needed now.
bool is_duplicate(const Node* node) {
    return node->data[FULL].on(CPU) && !node->locked() && node->data[FULL].host_holds == 0 &&
           std::all_of(std::begin(ALL_COMPONENTS), std::end(ALL_COMPONENTS), [&](int component) {
               const Data& data = node->data[component];
               return !data.on(CPU) || data.on(GPU);
           });
}

bool may_leave(const Node* node, Queue queue) {
    switch (queue) {
        case Queue::FULL_GPU: return is_device_leaf(node);
        case Queue::FULL_CPU: return is_host_leaf(node);
        case Queue::INNER_DUPLICATES: return !is_device_leaf(node) && is_duplicate(node);
        case Queue::LEAF_DUPLICATES: return is_device_leaf(node) && is_duplicate(node);
        default: break;
    }
    const Data& data = node->data[component_of(queue)];
    if (node->protects(component_of(queue), medium_of(queue))) return false;
    return medium_of(queue) == GPU ? data.on(GPU) : data.on(CPU) && !data.on(GPU);
}

}  // namespace

Candidate key_of(const State& state, const Node* node, Queue queue) {
    switch (queue) {
        case Queue::SWA_GPU:
        case Queue::SWA_CPU:
        case Queue::MAMBA_GPU:
        case Queue::MAMBA_CPU:
            return {static_cast<int64_t>(node->data[component_of(queue)].used), node->start, 0,
                    node->index};
        default: break;
    }
    const auto [first, second] = rank(state, node);
    return {first, second, node->start, node->index};
}

namespace {

// The rule: what a queue must have of a node, or nothing.
std::optional<Candidate> entry_of(const State& state, const Node* node, Queue queue) {
    if (!may_leave(node, queue)) return std::nullopt;
    return key_of(state, node, queue);
}

uint8_t bit_of(Queue queue) { return static_cast<uint8_t>(1 << static_cast<int>(queue)); }

bool same(const Candidate& a, const Candidate& b) { return !precedes(a, b) && !precedes(b, a); }

Node* front(const State& state, Queue queue) {
    const VictimQueue& candidates = state.queue(queue);
    if (candidates.empty()) return nullptr;
    Node* node = state.arena.at(candidates.front().node);
    assert(is_queued_right(state, node));
    return node;
}

}  // namespace

void requeue(State& state, Node* node) {
    if (node->parent == nullptr) return;
    for (const Queue queue : state.queue_kinds) {
        const uint8_t bit = bit_of(queue);
        if (const auto entry = entry_of(state, node, queue)) {
            state.queue(queue).put(*entry);
            node->queued |= bit;
        } else if ((node->queued & bit) != 0) {
            state.queue(queue).remove(node->index);
            node->queued &= static_cast<uint8_t>(~bit);
        }
    }
}

void rank_duplicates(State& state, bool ranked) {
    for (const Queue queue : {Queue::INNER_DUPLICATES, Queue::LEAF_DUPLICATES}) {
        std::vector<Queue>& kinds = state.queue_kinds;
        kinds.erase(std::remove(kinds.begin(), kinds.end(), queue), kinds.end());
        if (ranked) kinds.push_back(queue);
        state.queue(queue).clear();
        for (Node* node : all_nodes(state)) node->queued &= static_cast<uint8_t>(~bit_of(queue));
    }
    for (Node* node : all_nodes(state)) requeue(state, node);
}

Node* next_victim(const State& state, Component component, Medium medium) {
    return front(state, queue_of(component, medium));
}

Node* next_duplicate(const State& state) {
    Node* inner = front(state, Queue::INNER_DUPLICATES);
    return inner != nullptr ? inner : front(state, Queue::LEAF_DUPLICATES);
}

bool is_queued_right(const State& state, const Node* node) {
    if (node->parent == nullptr) return node->queued == 0;
    return std::all_of(state.queue_kinds.begin(), state.queue_kinds.end(), [&](const Queue queue) {
        const auto due = entry_of(state, node, queue);
        const Candidate* found = state.queue(queue).find(node->index);
        const bool marked = (node->queued & bit_of(queue)) != 0;
        if (!due || found == nullptr || !marked) return !due && found == nullptr && !marked;
        return same(*found, *due);
    });
}

}  // namespace kvcanon
