#include "state.hpp"

#include <random>

namespace kvcanon {

Node* Arena::make() {
    uint32_t index;
    if (!free_.empty()) {
        index = free_.back();
        free_.pop_back();
    } else {
        index = used_;
        if (index / CHUNK == chunks_.size()) {
            // Reserved, so that releasing a node never allocates.
            free_.reserve((chunks_.size() + 1) * CHUNK);
            chunks_.emplace_back(new Node[CHUNK]);
        }
        ++used_;
    }
    Node* node = at(index);
    node->index = index;
    return node;
}

void Arena::release(Node* node) {
    const uint32_t index = node->index;
    *node = Node();
    free_.push_back(index);
}

namespace {

uint64_t mix(uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t read(const uint32_t* words) {
    uint64_t both;
    std::memcpy(&both, words, sizeof both);
    return both;
}

}  // namespace

ChildTable::ChildTable(int tag_bits)
    : tag_mask_(0xffffffff >> (32 - tag_bits)), entries_(64, Entry{0, NOBODY}) {
    std::random_device random;
    for (uint64_t& secret : secret_) {
        secret = (static_cast<uint64_t>(random()) << 32 | random()) | 1;
    }
}

uint32_t ChildTable::tag(const Node* parent, uint32_t namespace_id, const uint32_t* words,
                         size_t page_words) const {
    // Only children of the root need the namespace; below it the parent implies it.
    const uint64_t place = parent->node_id << 1 | (parent->parent == nullptr ? 1 : 0);
    uint64_t hash = mix(place ^ secret_[0], namespace_id + secret_[1]);
    size_t at = 0;
    for (; at + 4 <= page_words; at += 4) {
        hash = mix(read(words + at) ^ secret_[0] ^ hash, read(words + at + 2) ^ secret_[1]);
    }
    for (; at < page_words; ++at) hash = mix(words[at] ^ secret_[0] ^ hash, secret_[1]);
    return static_cast<uint32_t>(mix(hash ^ secret_[1], secret_[0])) & tag_mask_;
}

Node* ChildTable::find(const Arena& arena, const Node* parent, uint32_t namespace_id,
                       const uint32_t* words, size_t page_words) const {
    const uint32_t sought = tag(parent, namespace_id, words, page_words);
    const size_t mask = entries_.size() - 1;
    for (size_t at = sought & mask;; at = (at + 1) & mask) {
        const Entry& entry = entries_[at];
        if (entry.node == NOBODY) return nullptr;
        if (entry.tag != sought) continue;
        Node* node = arena.at(entry.node);
        if (node->parent != parent || node->namespace_id != namespace_id) continue;
        const uint32_t* ours = node->span->words + static_cast<size_t>(node->offset) * page_words;
        if (std::memcmp(ours, words, page_words * sizeof(uint32_t)) == 0) return node;
    }
}

size_t ChildTable::where(uint32_t tag, uint32_t node) const {
    const size_t mask = entries_.size() - 1;
    size_t at = tag & mask;
    while (entries_[at].node != node) {
        if (entries_[at].node == NOBODY) std::abort();  // It was never added, or moved unseen.
        at = (at + 1) & mask;
    }
    return at;
}

void ChildTable::add(const Node* child, const uint32_t* words, size_t page_words) {
    if ((size_ + 1) * 2 > entries_.size()) grow();
    place({tag(child->parent, child->namespace_id, words, page_words), child->index});
    ++size_;
}

void ChildTable::replace(const Node* former, const Node* child, const uint32_t* words,
                         size_t page_words) {
    const uint32_t place = tag(child->parent, child->namespace_id, words, page_words);
    entries_[where(place, former->index)].node = child->index;
}

void ChildTable::remove(const Node* child, const uint32_t* words, size_t page_words) {
    const size_t mask = entries_.size() - 1;
    size_t hole = where(tag(child->parent, child->namespace_id, words, page_words), child->index);
    // Later entries move up into the hole, unless their tag belongs behind it.
    for (size_t at = (hole + 1) & mask; entries_[at].node != NOBODY; at = (at + 1) & mask) {
        const size_t home = entries_[at].tag & mask;
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            entries_[hole] = entries_[at];
            hole = at;
        }
    }
    entries_[hole].node = NOBODY;
    --size_;
}

void ChildTable::clear() {
    entries_.assign(64, Entry{0, NOBODY});
    size_ = 0;
}

void ChildTable::place(Entry entry) {
    const size_t mask = entries_.size() - 1;
    size_t at = entry.tag & mask;
    while (entries_[at].node != NOBODY) at = (at + 1) & mask;
    entries_[at] = entry;
}

void ChildTable::grow() {
    std::vector<Entry> former(entries_.size() * 2, Entry{0, NOBODY});
    former.swap(entries_);
    for (const Entry& entry : former) {
        if (entry.node != NOBODY) place(entry);
    }
}

State::State(const Config& asked, Engine* performer)
    : config(asked), engine(performer), children(asked.tag_bits) {
    for (const Component component : {FULL, SWA, MAMBA}) {
        for (const Medium medium : {GPU, CPU}) {
            const auto capacity = static_cast<int32_t>(config.capacity(component, medium));
            Pool& each = pool(component, medium);
            each.free = SlotSet(capacity);
            each.held = SlotSet(capacity);
            const auto padding = static_cast<int32_t>(config.padding(component, medium));
            if (padding != 0) each.held.add(Run{0, padding});
            if (capacity != padding) each.free.add(Run{padding, capacity - padding});
            const bool needed = config.has(component) && (medium == GPU || config.host_tier());
            if (needed) queue_kinds.push_back(queue_of(component, medium));
        }
    }
    if (config.writes_back()) {
        queue_kinds.insert(queue_kinds.end(), {Queue::INNER_DUPLICATES, Queue::LEAF_DUPLICATES});
    }
    if (config.swa()) {
        swa_of_full.assign(static_cast<size_t>(config.capacity(FULL, GPU)), -1);
        full_of_swa.assign(static_cast<size_t>(config.capacity(SWA, GPU)), -1);
    }
    root = arena.make();
}

}  // namespace kvcanon
