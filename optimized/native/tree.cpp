#include "tree.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "errors.hpp"
#include "invariants.hpp"
#include "recency.hpp"
#include "victims.hpp"

namespace kvcanon {

namespace {

// How many leading pages two sequences of `pages` pages share.
int32_t shared_pages(const uint32_t* ours, const uint32_t* theirs, int32_t pages,
                     size_t page_words) {
    const size_t bytes = page_words * sizeof(uint32_t);
    if (std::memcmp(ours, theirs, static_cast<size_t>(pages) * bytes) == 0) return pages;
    // Somewhere they differ. Bisect: memcmp is fast, but does not return where.
    int32_t alike = 0, differing = pages;
    while (differing - alike > 1) {
        const int32_t middle = alike + (differing - alike) / 2;
        const size_t skipped = static_cast<size_t>(alike) * page_words;
        if (std::memcmp(ours + skipped, theirs + skipped,
                        static_cast<size_t>(middle - alike) * bytes) == 0) {
            alike = middle;
        } else {
            differing = middle;
        }
    }
    return alike;
}

void set_first_child(State& state, Node* parent, Node* child) {
    update(state, parent, [&](QueuedWriter its) { its[&Node::first_child] = child; });
}

void link_child(State& state, Node* parent, Node* child) {
    child->previous = std::exchange(parent->last_child, child);
    if (child->previous != nullptr) {
        child->previous->next = child;
    } else {
        set_first_child(state, parent, child);
    }
}

void unlink_child(State& state, Node* parent, Node* child) {
    (child->next != nullptr ? child->next->previous : parent->last_child) = child->previous;
    if (child->previous != nullptr) {
        child->previous->next = child->next;
    } else {
        set_first_child(state, parent, child->next);
    }
    child->previous = child->next = nullptr;
}

// Put `upper` in the place of `node` among the children of its parent.
void take_place(State& state, Node* upper, Node* node) {
    Node* parent = node->parent;
    upper->previous = std::exchange(node->previous, nullptr);
    upper->next = std::exchange(node->next, nullptr);
    (upper->next != nullptr ? upper->next->previous : parent->last_child) = upper;
    if (upper->previous != nullptr) {
        upper->previous->next = upper;
    } else {
        set_first_child(state, parent, upper);
    }
}

// The slots of the first pages of a node's component, by medium.
using CutSlots = std::array<Runs, 2>;

CutSlots slots_before(const Data& data, int32_t at) {
    CutSlots slots;
    for (const Medium medium : {GPU, CPU}) {
        if (data.on(medium)) slots[medium] = RunReader(data.slots(medium)).next(at);
    }
    return slots;
}

// Give the new upper node its share of one component's data.
void cut_data(QueuedWriter upper, QueuedWriter lower, Data& above, const Data& below,
              Component component, CutSlots slots) noexcept {
    upper.of(component, &Data::lock_refs) = below.lock_refs;
    upper.of(component, &Data::host_holds) = below.host_holds;
    upper.of(component, &Data::used) = below.used;
    for (const Medium medium : {GPU, CPU}) {
        above.filling[medium] = below.filling[medium];
        if (!below.on(medium)) continue;
        lower.slots(component, medium).drop(slots[medium].slots());
        upper.slots(component, medium) = std::move(slots[medium]);
    }
}

// Room for some more items, so that to add them allocates nothing; in all linear in the items.
template <typename Item>
void make_room(std::vector<Item>& items, size_t more) {
    const size_t needed = items.size() + more;
    if (needed > items.capacity()) items.reserve(std::max(needed, 2 * items.size()));
}

// Allocate what a cut needs besides the node and its slots.
void reserve_cut(State& state, const Node* node, int32_t at) {
    Node upper;
    upper.node_id = state.next_id;
    upper.parent = node->parent;
    const auto page_words = static_cast<size_t>(state.config.page_words);
    const uint32_t* words = state.words(node) + static_cast<size_t>(at) * page_words;
    state.children.reserve(&upper, node->namespace_id, words, page_words);
    for (const Queue queue : state.queue_kinds) state.queue(queue).reserve(2, state.arena.size());
    for (const Component component : {FULL, SWA}) {
        for (Transfer* transfer : node->data[component].filling) {
            if (transfer != nullptr) make_room(transfer->parts, 2);
        }
    }
    if (state.journal != nullptr) make_room(state.journal->cuts, 1);
}

// A copy in flight of the lower node carries the upper one, too.
void follow_cut(Node* upper, Node* lower, Component component) {
    for (Transfer* transfer : upper->data[component].filling) {
        if (transfer == nullptr) continue;
        auto at = std::find_if(
            transfer->parts.begin(), transfer->parts.end(),
            [&](const Part& part) { return part.node == lower && part.component == component; });
        assert(at != transfer->parts.end());
        transfer->parts.insert(at, Part{upper, component});
    }
}

// The node in which a page ends, of the slices of one span from `top` down; from both ends at once,
// since most prompts end near one of them.
Node* slice_at(State& state, Node* top, int32_t end_pages) {
    const size_t page_words = static_cast<size_t>(state.config.page_words);
    Node* up = state.arena.at(top->span->last);
    for (Node* down = top;;) {
        if (up->start < end_pages) return up;
        if (end_pages <= down->end()) return down;
        up = up->parent;
        down = state.children.find(
            state.arena, down, down->namespace_id,
            state.words(down) + static_cast<size_t>(down->pages) * page_words, page_words);
    }
}

// Walk down, and put the last node that shares pages with a key into the path.
Path walk_to_end(State& state, const Key& key) {
    Path path(state);
    const size_t page_words = static_cast<size_t>(state.config.page_words);
    Stop last{state.root, 0};
    for (int32_t at = 0; at < key.pages && last.shared == last.node->pages;) {
        Node* child = state.children.find(state.arena, last.node, key.namespace_id,
                                          key.page(at, state.config), page_words);
        if (child == nullptr) break;
        // The first page was compared to find it; the span has the tokens of the nodes below, too.
        const int32_t rest = std::min(child->span->needed - child->offset, key.pages - at) - 1;
        at += 1 + shared_pages(state.words(child) + page_words, key.page(at + 1, state.config),
                               rest, page_words);
        Node* reached = slice_at(state, child, at);
        last = {reached, at - reached->start};
    }
    if (last.node != state.root) path.push_back(last);
    return path;
}

// Where the tokens of a new leaf will be: the page of a span that has room for them.
struct Place {
    SpanRef span;
    int32_t offset;
};

// The span above where that ends with the parent, and else a new one. If memory runs out, nothing
// has changed.
Place place_for(State& state, const Node* parent, const Key& key, int32_t pages) {
    const auto page_words = static_cast<size_t>(state.config.page_words);
    TokenSpan* above = parent->span.get();
    const int32_t above_end = parent->offset + parent->pages;
    if (above != nullptr && above_end == above->needed && may_grow(*above, pages, page_words)) {
        reserve(above, pages, page_words);
        return {parent->span, above_end};
    }
    // Only hashes need the span above, and without events no hash is computed.
    return {make_span(key.page(parent->end(), state.config), pages, page_words, *state.namespaces,
                      key.namespace_id, state.config.events ? above : nullptr, above_end),
            0};
}

}  // namespace

Path walk_for_use(State& state, const Key& key) {
    const Config& config = state.config;
    const bool plain = !config.host_tier() && !config.swa() && !config.mamba;
    return plain ? walk_to_end(state, key) : walk(state, key);
}

Path walk(State& state, const Key& key) {
    Path path(state);
    const size_t page_words = static_cast<size_t>(state.config.page_words);
    Node* node = state.root;
    int32_t at = 0;
    while (at < key.pages) {
        Node* child = state.children.find(state.arena, node, key.namespace_id,
                                          key.page(at, state.config), page_words);
        if (child == nullptr) break;
        // The first page was compared to find it.
        const int32_t rest = std::min(child->pages, key.pages - at) - 1;
        const int32_t shared = 1 + shared_pages(state.words(child) + page_words,
                                                key.page(at + 1, state.config), rest, page_words);
        path.push_back({child, shared});
        if (shared < child->pages) break;
        node = child;
        at = child->end();
    }
    assert(is_joined(path) && walked_pages(path) <= key.pages);
    return path;
}

Path require(State& state, const Key& key) {
    Path path = walk(state, key);
    if (walked_pages(path) < key.pages) throw PrefixNotCached(key.pages, walked_pages(path));
    return path;
}

Node* node_ending_at(State& state, const Path& path, int32_t end_pages) {
    for (const Stop& stop : path) {
        Node* node = stop.node;
        if (node->start < end_pages && end_pages <= node->end()) {
            return node->end() == end_pages ? node : cut(state, node, end_pages - node->start);
        }
    }
    return state.root;
}

void cut_path_at(State& state, Node* end, int64_t at_page) {
    for (Node* node = end; node->parent != nullptr; node = node->parent) {
        if (node->end() <= at_page) return;
        if (node->start < at_page) {
            cut(state, node, static_cast<int32_t>(at_page) - node->start);
            return;
        }
    }
}

Node* cut(State& state, Node* node, int32_t at) {
    assert(node->parent != nullptr && 0 < at && at < node->pages);
    const size_t page_words = static_cast<size_t>(state.config.page_words);
    CutSlots full = slots_before(node->data[FULL], at), swa;
    if (state.config.swa()) swa = slots_before(node->data[SWA], at);
    Node* upper = state.arena.make();
    try {
        reserve_cut(state, node, at);
    } catch (...) {
        state.arena.release(upper);
        throw;
    }
    // Nothing below needs memory.
    upper->node_id = state.new_id();
    upper->parent = node->parent;
    upper->namespace_id = node->namespace_id;
    upper->span = node->span;
    upper->offset = node->offset;
    upper->pages = at;
    take_place(state, upper, node);
    update(state, upper, [&](QueuedWriter its) {
        update(state, node, [&](QueuedWriter lower) {
            its[&Node::start] = node->start;
            its[&Node::created] = node->created;
            its[&Node::last_access] = node->last_access;
            // Without a host tier the lower node knows the hits of both.
            its[&Node::hit_count] = state.config.host_tier() ? node->hit_count.get() : 0;
            its[&Node::priority] = node->priority;
            cut_data(its, lower, upper->data[FULL], node->data[FULL], FULL, std::move(full));
            // All holds end at or below the lower node, which is the only child.
            its.of(FULL, &Data::lock_refs) = node->data[FULL].lock_refs != 0 ? 1 : 0;
            if (state.config.swa()) {
                cut_data(its, lower, upper->data[SWA], node->data[SWA], SWA, std::move(swa));
            }
            // A mamba state, its locks and its holds stay with the lower node, at whose end it is
            // exact.
            its[&Node::first_child] = upper->last_child = node;
            its[&Node::device_children] = upper->data[FULL].on(GPU) ? 1 : 0;
            lower[&Node::start] += at;
        });
    });
    state.children.replace(node, upper, state.words(upper), page_words);
    node->parent = upper;
    node->offset += at;
    node->pages -= at;
    state.children.add(node, state.words(node), page_words);
    ++state.node_count;
    follow_cut(upper, node, FULL);
    if (state.config.swa()) follow_cut(upper, node, SWA);
    assert(upper->end() == node->start && upper->pages == at && node->pages > 0);
    if (state.journal != nullptr) {
        state.journal->cuts.push_back({handle_of(upper), handle_of(node), at});
    }
    return upper;
}

Node* add_leaf(State& state, Node* parent, const Key& key, int32_t end_pages, uint64_t tick,
               int64_t priority) {
    const int32_t start = parent->end();
    assert(start < end_pages && end_pages <= key.pages);
    assert(parent->parent == nullptr || parent->namespace_id == key.namespace_id);
    const auto page_words = static_cast<size_t>(state.config.page_words);
    Place found = place_for(state, parent, key, end_pages - start);
    Node* leaf = state.arena.make();
    if (found.offset != 0) {
        grow(found.span.get(), key.page(start, state.config), end_pages - start, page_words);
    }
    found.span->last = leaf->index;
    leaf->node_id = state.new_id();
    leaf->parent = parent;
    leaf->namespace_id = key.namespace_id;
    leaf->span = std::move(found.span);
    leaf->offset = found.offset;
    leaf->pages = end_pages - start;
    update(state, leaf, [&](QueuedWriter its) {
        its[&Node::start] = start;
        its[&Node::created] = its[&Node::last_access] = tick;
        its[&Node::priority] = priority;
    });
    // A second child with the same first page would never be found.
    assert(state.children.find(state.arena, parent, key.namespace_id, state.words(leaf),
                               page_words) == nullptr);
    state.children.add(leaf, state.words(leaf), page_words);
    link_child(state, parent, leaf);
    ++state.node_count;
    return leaf;
}

void remove_leaf(State& state, Node* node) {
    assert(node->parent != nullptr && node->first_child == nullptr && is_bare(node));
    Node* parent = node->parent;
    state.children.remove(node, state.words(node), static_cast<size_t>(state.config.page_words));
    unlink_child(state, parent, node);
    if (node->span->refs > 1) {
        shorten(node->span.get(), node->offset, static_cast<size_t>(state.config.page_words));
        // The slice above is that of the parent, if there is one.
        node->span->last = parent->index;
    }
    inherit(state, parent, node);
    state.arena.release(node);
    --state.node_count;
}

std::vector<Node*> path_to(Node* node) {
    std::vector<Node*> path;
    for (; node->parent != nullptr; node = node->parent) path.push_back(node);
    std::reverse(path.begin(), path.end());
    return path;
}

std::vector<Node*> all_nodes(const State& state) {
    std::vector<Node*> nodes{state.root};
    for (size_t at = 0; at < nodes.size(); ++at) {
        for (Node* child = nodes[at]->first_child; child != nullptr; child = child->next) {
            nodes.push_back(child);
        }
    }
    return nodes;
}

void forget_tree(State& state) {
    assert(state.holds.empty() && state.transfers.empty());
    for (Node* node : all_nodes(state)) state.arena.release(node);
    state.root = state.arena.make();
    for (VictimQueue& queue : state.queues) {
        assert(queue.empty());
        queue.clear();
    }
    state.children.clear();
    state.node_count = 0;
}

}  // namespace kvcanon
