#include "backup.hpp"

#include <algorithm>

#include "evict.hpp"
#include "lock.hpp"
#include "transfer.hpp"
#include "tree.hpp"

namespace kvcanon {

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

Counts counted(const std::vector<Part>& parts, Medium medium) {
    Counts counts;
    for (const Part& part : parts) {
        counts[part.component] += part.node->data[part.component].slots(medium).slots();
    }
    return counts;
}

std::vector<Node*> backup_chain(const State& state, Node* node) {
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
    return wanted;
}

std::vector<uint64_t> back_up(State& state, Node* node) {
    std::vector<uint64_t> transfers;
    for (Node* each : backup_chain(state, node)) {
        const std::vector<Part> parts = missing(state, each);
        if (parts.empty()) continue;
        if (!free_host_slots(state, counted(parts, GPU))) break;
        Hold& held = hold(state, each, state.config.swa() ? each->start : -1);
        transfers.push_back(enqueue(state, Direction::BACKUP, parts, held));
    }
    return transfers;
}

void back_up_victim(State& state, Departures& departures, Node* victim) {
    const std::vector<Part> parts = missing(state, victim);
    if (parts.empty() || !free_host_slots(state, counted(parts, GPU), &departures)) return;
    if (departures.copy_id == 0) {
        Hold& held = hold(state, state.root, -1);
        departures.copy_id = begin(state, Direction::BACKUP, held).transfer_id;
    }
    add_parts(state, state.transfers.at(departures.copy_id), parts);
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
