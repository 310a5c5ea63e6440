#include "victims.hpp"

#include <algorithm>

namespace kvcanon {

namespace {

uint8_t bit_of(Component component, Medium medium) {
    return static_cast<uint8_t>(1 << (component * MEDIA + medium));
}

bool is_candidate(const Node* node, Component component, Medium medium) {
    if (component == FULL) return medium == GPU ? is_device_leaf(node) : is_host_leaf(node);
    const Data& data = node->data[component];
    return data.on(medium) && data.lock_refs == 0 && (medium == GPU || !data.on(GPU));
}

void push(std::vector<Candidate>& queue, const Candidate& entry) {
    queue.push_back(entry);
    std::push_heap(queue.begin(), queue.end(), comes_after);
}

// Remove outdated entries once they are most of the queue: of nodes that are gone, and of nodes
// that have a newer entry with a smaller key.
void tidy(State& state, std::vector<Candidate>& queue, Component component) {
    if (queue.size() <= 64 + 2 * state.node_count) return;
    const auto out_of_date = [&](const Candidate& entry) {
        const Node* node = state.arena.at(entry.node);
        return node->generation != entry.generation ||
               comes_after(entry, candidate(state, node, component));
    };
    queue.erase(std::remove_if(queue.begin(), queue.end(), out_of_date), queue.end());
    std::make_heap(queue.begin(), queue.end(), comes_after);
}

}  // namespace

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

Candidate candidate(const State& state, const Node* node, Component component) {
    if (component == FULL) {
        const auto [first, second] = rank(state, node);
        return {first, second, node->index, node->generation};
    }
    return {static_cast<int64_t>(node->data[component].used), node->start, node->index,
            node->generation};
}

void consider(State& state, Node* node) {
    for (const Component component : {FULL, SWA, MAMBA}) {
        if (!state.config.has(component)) continue;
        for (const Medium medium : {GPU, CPU}) {
            const uint8_t bit = bit_of(component, medium);
            if ((node->queued & bit) == 0 && is_candidate(node, component, medium)) {
                std::vector<Candidate>& queue = state.pool(component, medium).queue;
                tidy(state, queue, component);
                push(queue, candidate(state, node, component));
                node->queued |= bit;
            }
        }
    }
}

void requeue(State& state, Node* node) {
    if (state.config.eviction_policy != EvictionPolicy::MRU) return;
    for (const Medium medium : {GPU, CPU}) {
        if ((node->queued & bit_of(FULL, medium)) == 0) continue;
        std::vector<Candidate>& queue = state.pool(FULL, medium).queue;
        tidy(state, queue, FULL);
        push(queue, candidate(state, node, FULL));
    }
}

Node* next_victim(State& state, Component component, Medium medium) {
    std::vector<Candidate>& queue = state.pool(component, medium).queue;
    while (!queue.empty()) {
        std::pop_heap(queue.begin(), queue.end(), comes_after);
        const Candidate entry = queue.back();
        queue.pop_back();
        Node* node = state.arena.at(entry.node);
        if (node->generation != entry.generation) continue;
        const Candidate now = candidate(state, node, component);
        if (comes_after(entry, now)) continue;  // A newer entry with the smaller key took its turn.
        if (comes_after(now, entry)) {
            push(queue, now);
            continue;
        }
        node->queued &= static_cast<uint8_t>(~bit_of(component, medium));
        if (is_candidate(node, component, medium)) return node;
    }
    return nullptr;
}

}  // namespace kvcanon
