#include "backup.hpp"

#include <algorithm>

#include "evict.hpp"
#include "lock.hpp"
#include "transfer.hpp"
#include "tree.hpp"

namespace kvcanon {

namespace {

// Whether the host has slots for a node's copy, after evictions there.
bool has_host_slots(State& state, const Node* node, const std::vector<Part>& parts,
                    Departures* departures = nullptr) {
    Counts needed;
    for (const Part& part : parts) {
        needed[part.component] = node->data[part.component].slots(GPU).slots();
    }
    return free_host_slots(state, needed, departures);
}

}  // namespace

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
        if (!has_host_slots(state, each, parts)) break;
        Hold& held = hold(state, each, state.config.swa() ? each->start : -1);
        transfers.push_back(enqueue(state, Direction::BACKUP, parts, held));
    }
    return transfers;
}

void back_up_victim(State& state, Departures& departures, Node* victim) {
    const std::vector<Part> parts = missing(state, victim);
    if (parts.empty() || !has_host_slots(state, victim, parts, &departures)) return;
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
