#include "fetched.hpp"

#include <algorithm>
#include <string>

#include "emit.hpp"
#include "errors.hpp"
#include "recency.hpp"
#include "slots.hpp"
#include "tree.hpp"

namespace kvcanon {

namespace {

void require_host_tier(const State& state) {
    if (state.config.host_tier()) return;
    throw BadArgument("node", "cannot take fetched pages: there is no host tier");
}

void require_rows(const State& state, Component component, int64_t count) {
    const int64_t free = state.free_slots(component, CPU);
    if (free < count) throw OutOfSlots(pool_name(component, CPU), count, free);
}

// The tokens down to a node's end, and those of the fetched pages after them.
std::vector<uint32_t> whole_words(const State& state, Node* above, const Key& fetched) {
    const auto page_words = static_cast<size_t>(state.config.page_words);
    std::vector<uint32_t> words;
    words.reserve(static_cast<size_t>(above->end() + fetched.pages) * page_words);
    const auto append = [&](const uint32_t* from, int32_t pages) {
        words.insert(words.end(), from, from + static_cast<size_t>(pages) * page_words);
    };
    for (const Node* node : path_to(above)) append(state.words(node), node->pages);
    append(fetched.words, fetched.pages);
    return words;
}

// Fetched pages on their way into the tree.
struct Fetching {
    // Pages before the first.
    int32_t start;
    uint64_t tick;
    FetchedTaken outcome;
};

// How many of the fetched pages the host has, and how many the tree may give rows to.
// Throws: SpecViolation where a node with a host copy follows one that lacks it.
int64_t lacking_pages(const State& state, const Path& path, const Key& key, int32_t start) {
    int64_t present = 0, lacking = 0;
    for (const Stop& stop : path) {
        const Node* node = stop.node;
        if (node->end() <= start) continue;
        if (!node->data[FULL].on(CPU)) {
            lacking += stop.shared;
        } else if (lacking != 0 && !state.config.writes_back()) {
            throw SpecViolation("node " + std::to_string(node->node_id) +
                                " has a host copy below one that has none");
        } else {
            present += stop.shared;
        }
    }
    return key.pages - start - present;
}

// Give a node a host copy of the fetched bytes.
void adopt(State& state, Node* node, Fetching& fetching) {
    Runs rows = state.pool(FULL, CPU).free.take(node->pages);
    fetching.outcome.taken.push_back({node->start - fetching.start, rows});
    place(state, node, FULL, CPU, std::move(rows));
    emit_stored(state, node, CPU);
}

// Adopt host copies for the fetched pages that the tree has, down to a node.
void adopt_path(State& state, Node* last, Fetching& fetching) {
    for (Node* node : path_to(last)) {
        if (node->start < fetching.start) continue;
        if (state.config.writes_back() || node->data[FULL].on(CPU)) {
            fetching.outcome.present_pages += node->pages;
        } else {
            adopt(state, node, fetching);
        }
    }
}

}  // namespace

FetchedTaken take_fetched(State& state, Node* above, const Key& fetched) {
    require_host_tier(state);
    if (above->parent != nullptr && above->namespace_id != fetched.namespace_id) {
        throw BadArgument("namespace", "is not that of the node");
    }
    const std::vector<uint32_t> words = whole_words(state, above, fetched);
    const Key key{words.data(), above->end() + fetched.pages, fetched.namespace_id};
    const Path path = walk(state, key);
    require_rows(state, FULL, lacking_pages(state, path, key, above->end()));
    Journaled journaled(state);
    Fetching fetching{above->end(), state.tick(), {}};
    FetchedTaken& outcome = fetching.outcome;
    // Pages before them that the host lacks are a gap, which only write_back may have.
    const bool is_joined =
        above->parent == nullptr || above->data[FULL].on(CPU) || state.config.writes_back();
    Node* end = is_joined ? node_ending_at(state, path, walked_pages(path)) : above;
    if (is_joined) adopt_path(state, end, fetching);
    if (is_joined && end->end() < key.pages) {
        end = add_leaf(state, end, key, key.pages, fetching.tick, end->priority);
        adopt(state, end, fetching);
    }
    outcome.dropped = end->end() < key.pages;
    record_match(state, end, fetching.tick);
    if (!outcome.dropped && end->data[FULL].on(CPU)) outcome.end = handle_of(end);
    outcome.cuts = std::move(journaled.journal.cuts);
    return std::move(outcome);
}

WindowTaken take_fetched_window(State& state, const Node* above, Node* end, int64_t pages) {
    require_host_tier(state);
    for (const Node* node = end; node != above; node = node->parent) {
        if (node->parent == nullptr) throw BadArgument("above", "is not above the node");
    }
    if (!state.config.swa() || pages < 0 || pages > end->end()) {
        throw BadArgument("pages", "is " + std::to_string(pages) +
                                       "; give no more than there are, and a cache with a window");
    }
    require_rows(state, SWA, pages);
    Journaled journaled(state);
    WindowTaken outcome;
    const int32_t from = end->end() - static_cast<int32_t>(pages);
    const uint64_t tick = state.tick();
    Node* node = end;
    for (; node != above && node->end() > from; node = node->parent) {
        const int32_t begin = std::max(node->start.get(), from);
        if (node->data[SWA].on(CPU) || !node->data[FULL].on(CPU)) {
            outcome.left.push_back({begin - from, node->end() - from});
            continue;
        }
        if (node->start < begin) cut(state, node, begin - node->start);
        Runs rows = state.pool(SWA, CPU).free.take(node->pages);
        if (!node->data[SWA].on(GPU)) record_first_use(state, node, SWA, tick);
        outcome.taken.push_back({begin - from, rows});
        place(state, node, SWA, CPU, std::move(rows));
    }
    if (node->end() > from) outcome.left.push_back({0, node->end() - from});
    outcome.cuts = std::move(journaled.journal.cuts);
    return outcome;
}

Runs take_fetched_state(State& state, Node* end) {
    require_host_tier(state);
    if (!state.config.mamba || end->parent == nullptr) {
        throw BadArgument("node", "is the root, or the cache has no states");
    }
    const Data& data = end->data[MAMBA];
    if (data.on(CPU) || !end->data[FULL].on(CPU)) return {};
    require_rows(state, MAMBA, 1);
    if (!data.on(GPU)) record_first_use(state, end, MAMBA, state.tick());
    Runs row = state.pool(MAMBA, CPU).free.take(1);
    place(state, end, MAMBA, CPU, row);
    return row;
}

}  // namespace kvcanon
