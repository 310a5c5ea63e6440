#include "state.hpp"

#include <algorithm>
#include <cassert>
#include <new>

#include "invariants.hpp"

namespace kvcanon {

namespace {

// Nodes are most of what a tree of short prompts takes. On 64 bits a node without its window data
// and state is 208 bytes.
static_assert(sizeof(void*) != 8 || (sizeof(Node) <= 208 && sizeof(Data) <= 64));

std::vector<Component> components_besides_full(const Config& config) {
    std::vector<Component> found;
    for (const Component component : {SWA, MAMBA}) {
        if (config.has(component)) found.push_back(component);
    }
    return found;
}

// Make a value anew in its place: one with `Queued` members is not assigned to.
template <typename Value, typename... Given>
void renew(Value& value, const Given&... given) {
    value.~Value();
    new (&value) Value(given...);
}

}  // namespace

void Arena::add_chunk() {
    // Reserved, so that releasing a node never allocates.
    free_.reserve((chunks_.size() + 1) * CHUNK);
    Chunk chunk;
    chunk.nodes = std::make_unique<Node[]>(CHUNK);
    if (!others_.empty()) chunk.others = std::make_unique<Data[]>(CHUNK * others_.size());
    Data* next = chunk.others.get();
    for (const Component component : others_) {
        for (uint32_t at = 0; at < CHUNK; ++at) chunk.nodes[at].data.give(component, next++);
    }
    chunks_.push_back(std::move(chunk));
}

Node* Arena::make() {
    uint32_t index;
    if (!free_.empty()) {
        index = free_.back();
        free_.pop_back();
    } else {
        index = used_;
        assert(index >> HANDLE_INDEX_BITS == 0);
        if (index / CHUNK == chunks_.size()) add_chunk();
        ++used_;
    }
    Node* node = at(index);
    assert(is_bare(node) && node->parent == nullptr && !node->span);
    node->index = index;
    node->generation = std::max(node->generation, first_generation_);
    return node;
}

void Arena::release(Node* node) {
    assert(is_bare(node) && node->settling == 0);
    const uint32_t index = node->index;
    assert(index < used_ && at(index) == node);
    const uint64_t generation = node->generation + 1;
    renew(node->data[FULL]);
    for (const Component component : others_) renew(node->data[component]);
    const NodeData empty = node->data;
    renew(*node, empty);
    node->generation = generation;
    last_generation_ = std::max(last_generation_, generation);
    free_.push_back(index);
}

void Arena::clear() {
    chunks_.clear();
    free_ = ChunkedArray<uint32_t>();
    used_ = 0;
    // A node in use has the generation after that of its place's last release, or the first.
    first_generation_ = std::max(last_generation_, first_generation_) + 1;
}

State::State(const Config& asked, Engine* performer)
    : config(asked),
      engine(performer),
      arena(components_besides_full(asked)),
      children(asked.tag_bits) {
    for (const Component component : {FULL, SWA, MAMBA}) {
        for (const Medium medium : {GPU, CPU}) {
            const auto capacity = static_cast<int32_t>(config.capacity(component, medium));
            Pool& each = pool(component, medium);
            // A caller's tables are read and written in stretches.
            each.free = SlotSet(capacity, config.caller_copies);
            const auto padding = static_cast<int32_t>(config.padding(component, medium));
            each.held = SlotSet(config.lends_slots() ? capacity : padding);
            if (padding != 0) each.held.add(Run{0, padding});
            if (capacity != padding) each.free.add(Run{padding, capacity - padding});
            const bool needed = config.has(component) && (medium == GPU || config.host_tier());
            if (needed) queue_kinds.push_back(queue_of(component, medium));
        }
    }
    if (config.writes_back()) {
        queue_kinds.insert(queue_kinds.end(), {Queue::INNER_DUPLICATES, Queue::LEAF_DUPLICATES});
    }
    if (config.has_store) {
        read_by_store = SlotSet(static_cast<int32_t>(config.capacity(FULL, CPU)));
    }
    if (config.pairs_slots()) {
        swa_of_full.assign(static_cast<size_t>(config.capacity(FULL, GPU)), -1);
        full_of_swa.assign(static_cast<size_t>(config.capacity(SWA, GPU)), -1);
    }
    root = arena.make();
}

}  // namespace kvcanon
