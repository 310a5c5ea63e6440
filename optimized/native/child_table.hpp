// Finds children by their first page: one hash table for the whole tree.
//
// The table is cut into segments by the first bits of the tags. A segment that is full is cut in
// two, so that no call pays for the size of the table: growing moves the entries of one segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace kvcanon {

class Arena;
struct Node;

class ChildTable {
  public:
    explicit ChildTable(int tag_bits);
    // The child of `parent` in a namespace whose first page is at `words`; nullptr where none is.
    Node* find(const Arena& arena, const Node* parent, uint32_t namespace_id, const uint32_t* words,
               size_t page_words) const;
    // Allocate now what an `add` below this parent, and with these words, needs.
    void reserve(const Node* parent, uint32_t namespace_id, const uint32_t* words,
                 size_t page_words) {
        make_way(tag(parent, namespace_id, words, page_words));
    }
    void add(const Node* child, const uint32_t* words, size_t page_words);
    // Replace `former` by `child`, which a cut put in its place.
    void replace(const Node* former, const Node* child, const uint32_t* words, size_t page_words);
    void remove(const Node* child, const uint32_t* words, size_t page_words);
    void clear();
    size_t size() const { return size_; }

  private:
    // The tag alone decides the position, so that entries can move without reading their nodes.
    struct Entry {
        uint32_t tag;
        uint32_t node;
    };
    // Open addressing; the number of entries is a power of two.
    struct Segment {
        std::vector<Entry> entries;
        size_t size;
        // How many first bits the tags of its entries share.
        int depth;
    };
    static constexpr uint32_t NOBODY = 0xffffffff;
    // A segment as large as this is cut in two; the last bits of a tag are its place there.
    static constexpr int SEGMENT_BITS = 10;

    uint32_t tag(const Node* parent, uint32_t namespace_id, const uint32_t* words,
                 size_t page_words) const;
    Segment& segment(uint32_t tag) const {
        return *directory_[static_cast<size_t>(uint64_t{tag} >> (tag_bits_ - depth_))];
    }
    void make_way(uint32_t tag);
    void cut(Segment& full, uint32_t tag);
    static void enlarge(Segment& full);
    static size_t where(const Segment& segment, uint32_t tag, uint32_t node);
    static void place(Segment& segment, Entry entry);

    // Random for each table, so that no client can prepare prompts that collide.
    uint64_t secret_[2];
    int tag_bits_;
    std::vector<std::unique_ptr<Segment>> segments_;
    // The segment of each value of the first `depth_` bits of a tag.
    std::vector<Segment*> directory_;
    int depth_ = 0;
    size_t size_ = 0;
};

}  // namespace kvcanon
