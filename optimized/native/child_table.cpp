#include "child_table.hpp"

#include <cassert>
#include <cstdlib>
#include <cstring>
#include <random>

#include "state.hpp"

namespace kvcanon {

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

ChildTable::ChildTable(int tag_bits) : tag_bits_(tag_bits) {
    std::random_device random;
    for (uint64_t& secret : secret_) {
        secret = (static_cast<uint64_t>(random()) << 32 | random()) | 1;
    }
    clear();
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
    return static_cast<uint32_t>(mix(hash ^ secret_[1], secret_[0])) >> (32 - tag_bits_);
}

Node* ChildTable::find(const Arena& arena, const Node* parent, uint32_t namespace_id,
                       const uint32_t* words, size_t page_words) const {
    const uint32_t sought = tag(parent, namespace_id, words, page_words);
    const std::vector<Entry>& entries = segment(sought).entries;
    const size_t mask = entries.size() - 1;
    for (size_t at = sought & mask;; at = (at + 1) & mask) {
        const Entry& entry = entries[at];
        if (entry.node == NOBODY) return nullptr;
        if (entry.tag != sought) continue;
        Node* node = arena.at(entry.node);
        if (node->parent != parent || node->namespace_id != namespace_id) continue;
        const uint32_t* ours = node->span->words + static_cast<size_t>(node->offset) * page_words;
        if (std::memcmp(ours, words, page_words * sizeof(uint32_t)) == 0) return node;
    }
}

size_t ChildTable::where(const Segment& segment, uint32_t tag, uint32_t node) {
    const size_t mask = segment.entries.size() - 1;
    size_t at = tag & mask;
    while (segment.entries[at].node != node) {
        // It was never added, or moved unseen.
        if (segment.entries[at].node == NOBODY) std::abort();
        at = (at + 1) & mask;
    }
    return at;
}

void ChildTable::add(const Node* child, const uint32_t* words, size_t page_words) {
    const uint32_t sought = tag(child->parent, child->namespace_id, words, page_words);
    make_way(sought);
    place(segment(sought), {sought, child->index});
    ++size_;
}

void ChildTable::replace(const Node* former, const Node* child, const uint32_t* words,
                         size_t page_words) {
    const uint32_t sought = tag(child->parent, child->namespace_id, words, page_words);
    Segment& found = segment(sought);
    found.entries[where(found, sought, former->index)].node = child->index;
}

void ChildTable::remove(const Node* child, const uint32_t* words, size_t page_words) {
    const uint32_t sought = tag(child->parent, child->namespace_id, words, page_words);
    Segment& found = segment(sought);
    std::vector<Entry>& entries = found.entries;
    const size_t mask = entries.size() - 1;
    size_t hole = where(found, sought, child->index);
    // Later entries move up into the hole, unless their tag belongs behind it.
    for (size_t at = (hole + 1) & mask; entries[at].node != NOBODY; at = (at + 1) & mask) {
        const size_t home = entries[at].tag & mask;
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            entries[hole] = entries[at];
            hole = at;
        }
    }
    entries[hole].node = NOBODY;
    --found.size;
    --size_;
}

void ChildTable::clear() {
    segments_.clear();
    segments_.push_back(
        std::make_unique<Segment>(Segment{std::vector<Entry>(64, Entry{0, NOBODY}), 0, 0}));
    directory_ = {segments_.back().get()};
    depth_ = 0;
    size_ = 0;
}

void ChildTable::place(Segment& segment, Entry entry) {
    assert(segment.size < segment.entries.size() && entry.node != NOBODY);
    const size_t mask = segment.entries.size() - 1;
    size_t at = entry.tag & mask;
    while (segment.entries[at].node != NOBODY) at = (at + 1) & mask;
    segment.entries[at] = entry;
    ++segment.size;
}

// Make sure that the segment of a tag stays at most half full when an entry is added.
void ChildTable::make_way(uint32_t tag) {
    for (;;) {
        Segment& found = segment(tag);
        if ((found.size + 1) * 2 <= found.entries.size()) return;
        const bool small = found.entries.size() < size_t{1} << SEGMENT_BITS;
        if (small || found.depth + SEGMENT_BITS >= tag_bits_) {
            enlarge(found);
        } else {
            cut(found, tag);
        }
    }
}

void ChildTable::enlarge(Segment& full) {
    std::vector<Entry> former(full.entries.size() * 2, Entry{0, NOBODY});
    former.swap(full.entries);
    full.size = 0;
    for (const Entry& entry : former) {
        if (entry.node != NOBODY) place(full, entry);
    }
}

// Cut the segment of a tag in two, by one bit more of the tags.
void ChildTable::cut(Segment& full, uint32_t tag) {
    if (full.depth == depth_) {
        std::vector<Segment*> doubled;
        doubled.reserve(directory_.size() * 2);
        for (Segment* each : directory_) doubled.insert(doubled.end(), 2, each);
        directory_.swap(doubled);
        ++depth_;
    }
    const size_t entries = full.entries.size();
    segments_.emplace_back(
        new Segment{std::vector<Entry>(entries, Entry{0, NOBODY}), 0, full.depth + 1});
    Segment& other = *segments_.back();
    std::vector<Entry> former(entries, Entry{0, NOBODY});
    former.swap(full.entries);
    full.size = 0;
    ++full.depth;
    const int bit = tag_bits_ - full.depth;
    for (const Entry& entry : former) {
        if (entry.node != NOBODY) place((entry.tag >> bit & 1) != 0 ? other : full, entry);
    }
    // Of the values that begin with the bits of the former segment, the second half.
    assert(full.depth <= depth_ && full.depth <= tag_bits_);
    const size_t half = size_t{1} << (depth_ - full.depth);
    const size_t first = static_cast<size_t>(uint64_t{tag} >> (bit + 1)) * 2 * half;
    for (size_t at = first + half; at < first + 2 * half; ++at) directory_[at] = &other;
}

}  // namespace kvcanon
