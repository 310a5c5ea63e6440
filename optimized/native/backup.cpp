#include "backup.hpp"

#include <algorithm>

#include "evict.hpp"
#include "lock.hpp"
#include "transfer.hpp"
#include "tree.hpp"

namespace kvcanon {

namespace {

// The components that a node has on the device and not on the host.
std::vector<Part> missing(const State& state, Node* node) {
    std::vector<Part> parts;
    for (const Component component : {FULL, SWA, MAMBA}) {
        const Data& data = node->data[component];
        if (state.config.has(component) && data.resident(GPU) && !data.on(CPU)) {
            parts.push_back({node, component});
        }
    }
    return parts;
}

// Enqueue one node's copy, which holds `held_node`; 0 where the host has too few free slots for all
// of it.
uint64_t enqueue_backup(State& state, Node* node, std::vector<Part> parts, Node* held_node) {
    Counts needed;
    for (const Part& part : parts) {
        needed[part.component] = node->data[part.component].slots[GPU].slots();
    }
    if (!free_host_slots(state, needed)) return 0;
    Hold& held = hold(state, held_node, state.config.swa() ? held_node->start : -1);
    return enqueue(state, Direction::BACKUP, std::move(parts), held);
}

}  // namespace

std::vector<uint64_t> back_up(State& state, Node* node) {
    const std::vector<Node*> path = path_to(node);
    const int64_t window_from = std::max<int64_t>(0, held_window_start(state, node));
    std::vector<Node*> wanted, healed;
    for (Node* each : path) {
        const bool in_chain = state.config.backed_parents() || each == node;
        if (in_chain && !each->data[FULL].on(CPU)) {
            wanted.push_back(each);
        } else if (each->end() > window_from && each->data[FULL].on(CPU)) {
            healed.push_back(each);
        }
    }
    wanted.insert(wanted.end(), healed.begin(), healed.end());
    std::vector<uint64_t> transfers;
    for (Node* each : wanted) {
        std::vector<Part> parts = missing(state, each);
        if (parts.empty()) continue;
        const uint64_t transfer_id = enqueue_backup(state, each, std::move(parts), each);
        if (transfer_id == 0) break;
        transfers.push_back(transfer_id);
    }
    return transfers;
}

uint64_t back_up_victim(State& state, Node* node) {
    std::vector<Part> parts = missing(state, node);
    return parts.empty() ? 0 : enqueue_backup(state, node, std::move(parts), state.root);
}

int64_t unbacked_pages(const State& state, Node* end) {
    const int64_t threshold = state.config.backup_hits();
    int64_t pages = 0;
    if (threshold == 0) return pages;
    for (const Node* node = end; node->parent != nullptr; node = node->parent) {
        if (node->hit_count >= threshold && !node->data[FULL].on(CPU)) pages += node->pages;
    }
    return pages;
}

}  // namespace kvcanon
