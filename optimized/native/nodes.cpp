#include "nodes.hpp"

#include <algorithm>

#include "errors.hpp"
#include "lock.hpp"
#include "slots.hpp"
#include "tree.hpp"

namespace kvcanon {

namespace {

// The host slots that a load of the path to a node would read.
Counts host_only(const State& state, const Node* end) {
    Counts found;
    const int64_t window_from = held_window_start(state, end);
    const auto waits = [](const Data& data) { return data.on(CPU) && !data.on(GPU); };
    for (const Node* node = end; node->parent != nullptr; node = node->parent) {
        if (waits(node->data[FULL])) found[FULL] += node->pages;
        if (window_from >= 0 && node->end() > window_from && waits(node->data[SWA])) {
            found[SWA] += node->pages;
        }
    }
    if (end->parent != nullptr && waits(end->data[MAMBA])) found[MAMBA] = 1;
    return found;
}

// The first page from which the caller must hand full data over: where the tree lacks full data, or
// window data that the caller has.
int64_t first_lacking(const State& state, const Path& path, int64_t from) {
    for (const Stop& stop : path) {
        const Node* node = stop.node;
        const int64_t end = node->start + stop.shared;
        if (!node->data[FULL].on(GPU)) return node->start;
        if (state.config.swa() && end > from && !node->data[SWA].on(GPU)) {
            return std::max<int64_t>(node->start, from);
        }
    }
    return walked_pages(path);
}

void check_offered(const Key& key, const Offered& offered) {
    const auto check = [&](const char* name, int64_t pages) {
        if (pages >= 0 && pages <= key.pages) return;
        throw BadArgument(name, "is " + std::to_string(pages) + "; the key has " +
                                    std::to_string(key.pages) + " pages");
    };
    check("owned_pages", offered.owned_pages);
    check("window_from", offered.window_from);
    check("counted_pages", offered.counted_pages);
}

// The first page of the node in which the window before a node's end begins.
int64_t whole_window_start(const State& state, const Node* node) {
    const int64_t start = window_start(state, node->end());
    while (node->parent != nullptr && node->start > start) node = node->parent;
    return node->start;
}

bool within(const Pages& pages, const std::vector<Pages>& ranges) {
    return std::any_of(ranges.begin(), ranges.end(), [&](const Pages& range) {
        return range.begin <= pages.begin && pages.end <= range.end;
    });
}

// The pages from `begin` to `end` that are in none of the ranges, which are sorted.
std::vector<Pages> outside(int32_t begin, int32_t end, const std::vector<Pages>& ranges) {
    std::vector<Pages> found;
    for (const Pages& range : ranges) {
        if (range.begin > begin) found.push_back({begin, std::min(range.begin, end)});
        begin = std::max(begin, range.end);
        if (begin >= end) return found;
    }
    if (begin < end) found.push_back({begin, end});
    return found;
}

// Add a node that took window data, after those above it.
void add_window(const Node* node, bool had_full, NodeInserted& outcome) {
    const bool locked = had_full && node->data[FULL].lock_refs != 0;
    std::vector<AdoptedWindow>& windows = outcome.windows;
    if (windows.empty() || windows.back().pages.end != node->start ||
        windows.back().locked != locked) {
        windows.push_back({0, handle_of(node->parent), {node->start, node->start}, locked});
    }
    windows.back().end = handle_of(node);
    windows.back().pages.end = node->end();
    if (!had_full || locked) return;
    std::vector<Adopted>& healed = outcome.healed;
    if (healed.empty() || healed.back().begin + healed.back().rows.slots() != node->start) {
        healed.push_back({node->start, Runs()});
    }
    healed.back().rows.append(node->data[FULL].slots(GPU));
}

// What the journal of an insert says about the pages that the tree took.
void add_taken(Node* end, const Offered& offered, Journal& journal, NodeInserted& outcome) {
    std::vector<Pages> full, window;
    for (Placed& placed : journal.placements) {
        if (placed.medium != GPU) continue;
        if (placed.component == FULL) {
            full.push_back({placed.start, placed.end()});
            outcome.full.push_back({placed.start, std::move(placed.slots)});
        } else if (placed.component == SWA) {
            window.push_back({placed.start, placed.end()});
        } else {
            outcome.state = std::move(placed.slots);
        }
    }
    std::vector<Pages> taken = full;
    if (!window.empty()) {
        for (const Node* node : path_to(end)) {
            const Pages pages{node->start, node->end()};
            if (!node->data[SWA].on(GPU) || !within(pages, window)) continue;
            const bool had_full = !within(pages, full);
            add_window(node, had_full, outcome);
            if (had_full) taken.push_back(pages);
        }
    }
    std::sort(taken.begin(), taken.end(),
              [](const Pages& a, const Pages& b) { return a.begin < b.begin; });
    outcome.duplicates =
        outside(static_cast<int32_t>(offered.owned_pages), outcome.walked_pages, taken);
}

}  // namespace

Node* node_at(const State& state, uint64_t handle) {
    Node* node = state.arena.find(handle);
    if (node != nullptr) return node;
    throw BadArgument("node", "is " + std::to_string(handle) +
                                  ", which is no node of this cache, or of one that is gone");
}

NodeMatched match_nodes(State& state, const Key& key) {
    Journaled journaled(state);
    const Matched found = match(state, key, false);
    NodeMatched outcome;
    outcome.prefix_pages = found.prefix_pages;
    outcome.device_pages = found.device_pages;
    outcome.walked_pages = found.walked_pages;
    outcome.end = found.end_handle;
    outcome.device_end = handle_of(found.device_end);
    outcome.last = handle_of(found.last);
    if (state.config.host_tier()) outcome.host_only = host_only(state, found.end);
    outcome.cuts = std::move(journaled.journal.cuts);
    return outcome;
}

NodeLocked lock_node(State& state, Node* node, bool window, bool mamba,
                     const std::vector<Node*>& windows_of) {
    int64_t window_from = -1;
    if (window && state.config.swa()) {
        window_from = whole_window_start(state, node);
        for (const Node* each : windows_of) {
            window_from = std::min(window_from, whole_window_start(state, each));
        }
    }
    const int64_t before = state.pool(FULL, GPU).protected_slots;
    NodeLocked locked;
    locked.receipt = hold(state, node, window_from).receipt;
    if (!mamba) release_state(state, locked.receipt);
    locked.protected_slots = state.pool(FULL, GPU).protected_slots - before;
    locked.window_below_root = window_from > 0;
    return locked;
}

Hold& hold_of(State& state, Node* node, uint64_t receipt) {
    Hold& held = open_hold(state, receipt);
    if (held.node != node) {
        throw BadArgument("receipt", "was given for node " + std::to_string(handle_of(held.node)) +
                                         " and not for " + std::to_string(handle_of(node)));
    }
    return held;
}

Runs slots_between(const Node* end, const Node* above, Component component, Medium medium) {
    std::vector<const Runs*> path;
    for (const Node* node = end; node != above; node = node->parent) {
        if (node->parent == nullptr) throw BadArgument("above", "is not above the node");
        const Runs& own = node->data[component].slots(medium);
        if (!own) throw BadArgument("node", "has no data of " + pool_name(component, medium));
        path.push_back(&own);
    }
    Runs slots;
    while (!path.empty()) {
        slots.append(*path.back());
        path.pop_back();
    }
    return slots;
}

NodeInserted insert_nodes(State& state, const Key& key, const Offered& offered,
                          const OnRows& on_rows) {
    check_offered(key, offered);
    const Path path = walk_for_use(state, key);
    NodeInserted outcome;
    outcome.walked_pages = walked_pages(path);
    const int64_t window = std::max(offered.window_from, offered.owned_pages);
    const int64_t start = first_lacking(state, path, window);
    if (start < offered.owned_pages) throw PrefixNotCached(offered.owned_pages, start);
    Counts counts;
    counts[FULL] = key.pages - start;
    if (state.config.swa()) counts[SWA] = std::max<int64_t>(0, key.pages - std::max(window, start));
    counts[MAMBA] = offered.state && key.pages != 0 ? 1 : 0;
    const SlotLists rows = allocate(state, counts);
    Journaled journaled(state);
    Inserted done;
    try {
        if (on_rows && rows[FULL]) on_rows(start, rows[FULL]);
        done = insert_along(state, key, path, start, rows, offered.counted_pages, offered.priority);
    } catch (const CacheError&) {
        state.journal = nullptr;
        take_back(state, rows);
        throw;
    } catch (...) {
        // Memory ran out. If nothing has changed, the call is refused, and the rows come free.
        state.journal = nullptr;
        if (!state.changed) take_back(state, rows);
        throw;
    }
    outcome.end = handle_of(done.end);
    const Node* lowest = nullptr;
    for (const Node* each : done.wanted) {
        outcome.wanted.push_back(handle_of(each));
        if (lowest == nullptr || each->start > lowest->start) lowest = each;
    }
    if (lowest != nullptr) outcome.wanted_end = handle_of(lowest);
    add_taken(done.end, offered, journaled.journal, outcome);
    outcome.cuts = std::move(journaled.journal.cuts);
    return outcome;
}

}  // namespace kvcanon
