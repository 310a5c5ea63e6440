// A token span: the tokens of one inserted leaf, stored once, and its page hashes.
//
// Nodes are slices of spans, so that a cut copies nothing: both parts refer to the same tokens. All
// slices of a span are on one path, one after the other, and the tree loses nodes from their lower
// end, so a span always shrinks at its tail. There it also grows: a leaf below the last slice of a
// span becomes the next slice, so that a walk compares a prompt that grew leaf by leaf at once.
//
// A hash depends on all pages before, but a span does not need its ancestors once its first page
// has a hash. Hashes are computed when an event or a snapshot needs them, and continue after the
// last computed one. A cache without events has no memory for them.
//
// What keeps a span alive (`refs`): each node that is a slice of it, each event about its pages,
// and each span below whose first page has no hash yet (`above`). What keeps its pages: the first
// `needed` are those of nodes, and while an event refers to the span (`pins`), none of the others
// goes either. So an event emitted before its node is removed finds its tokens and hashes, and
// those of the pages above, whose nodes are removed later; of events that were dropped nobody asks.
// `is_sound` is what holds between calls.
#pragma once

#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "namespaces.hpp"
#include "sha256.hpp"

namespace kvcanon {

// Memory of all spans for tokens and hashes, in bytes.
inline size_t span_bytes = 0;

// An array that can be resized.
template <typename Item>
class Block {
  public:
    Block() = default;
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block() {
        span_bytes -= bytes_;
        std::free(items_);
    }

    operator Item*() const { return items_; }
    size_t capacity() const { return bytes_ / sizeof(Item); }

    // Make room for so many items, and for some more if there are items already: to add items one
    // by one takes time that is linear in their number.
    void reach(size_t count) {
        if (count > capacity()) resize(items_ == nullptr ? count : count + count / 8);
    }
    // Give memory back if an eighth or more of it is not needed for so many items.
    void fit(size_t count) {
        if (count <= capacity() - capacity() / 8) resize(count);
    }
    void resize(size_t count) {
        const size_t bytes = count * sizeof(Item);
        void* moved = std::realloc(items_, bytes);
        // If shrinking fails, the block keeps its size.
        if (moved == nullptr && bytes > bytes_) throw std::bad_alloc();
        if (moved == nullptr) return;
        items_ = static_cast<Item*>(moved);
        span_bytes += bytes - std::exchange(bytes_, bytes);
    }

  private:
    Item* items_ = nullptr;
    size_t bytes_ = 0;
};

struct TokenSpan;

// The hashes by which storage names the first pages of a span. storage_hashes.hpp makes them.
struct StorageHashes {
    int32_t hashed = 0;
    Block<uint8_t> of_pages;
};

// The page hashes of a span, and what they continue.
struct SpanHashes {
    // What the first page follows, until its hash is known: the page before `above_end` of `above`,
    // or the seed of the namespace.
    TokenSpan* above = nullptr;
    int32_t above_end = 0;
    // Pages that have hashes, from the first on; `of_pages` is nullptr while there are none.
    int32_t hashed = 0;
    Block<uint8_t> of_pages;
    // Its place in the batch of `hash_spans` that is being computed; -1 outside one.
    int32_t batch_index = -1;
    // The hash before the first page, for events; valid once `hashed` is not 0.
    bool has_parent = false;
    uint8_t parent[HASH_BYTES] = {};
    // nullptr while nothing asked for any.
    std::unique_ptr<StorageHashes> for_storage;
};

struct TokenSpan {
    TokenSpan(Namespaces& all, uint32_t namespace_index)
        : namespaces(all), namespace_id(namespace_index) {
        namespaces.hold(namespace_id);
    }
    TokenSpan(const TokenSpan&) = delete;
    TokenSpan& operator=(const TokenSpan&) = delete;
    ~TokenSpan() { namespaces.release(namespace_id); }

    // Pages that have hashes.
    int32_t hashed() const { return hashes == nullptr ? 0 : hashes->hashed; }
    // The span that its first page follows, as long as that page has no hash.
    TokenSpan* above() const { return hashes == nullptr ? nullptr : hashes->above; }

    // Counts the spans of each namespace; whoever keeps a span keeps these, too.
    Namespaces& namespaces;
    const uint32_t namespace_id;
    uint32_t refs = 0;
    Block<uint32_t> words;
    // nullptr while nothing asked for any, and no span is above.
    std::unique_ptr<SpanHashes> hashes;
    int32_t pages = 0;
    // Pages that are still in the tree; pins may keep more.
    int32_t needed = 0;
    // Pending events that refer to the span; while there are any, no page of it may go.
    uint32_t pins = 0;
    // The index of the lowest node that is a slice of it; the tree writes it.
    uint32_t last = 0;
};

// Shared ownership of a span, for one thread.
class SpanRef {
  public:
    SpanRef() = default;
    explicit SpanRef(TokenSpan* span) : span_(span) {
        if (span_ != nullptr) ++span_->refs;
    }
    SpanRef(const SpanRef& other) : SpanRef(other.span_) {}
    SpanRef(SpanRef&& other) noexcept : span_(std::exchange(other.span_, nullptr)) {}
    SpanRef& operator=(SpanRef other) noexcept {
        std::swap(span_, other.span_);
        return *this;
    }
    ~SpanRef() { drop(span_); }

    TokenSpan* get() const { return span_; }
    TokenSpan* operator->() const { return span_; }
    explicit operator bool() const { return span_ != nullptr; }

    // Drop one reference, and delete spans up the chain that have no references left.
    static void drop(TokenSpan* span) {
        assert(span == nullptr || span->refs > 0);
        while (span != nullptr && --span->refs == 0) {
            TokenSpan* above = span->above();
            assert(span->hashes == nullptr || span->hashes->batch_index == -1);
            delete span;
            span = above;
        }
    }

  private:
    TokenSpan* span_ = nullptr;
};

// Make a span of `pages` pages of `words_per_page` words each. `above` may be nullptr.
SpanRef make_span(const uint32_t* words, int32_t pages, size_t words_per_page,
                  Namespaces& namespaces, uint32_t namespace_id, TokenSpan* above,
                  int32_t above_end);

// Whether a span may take so many more pages at its tail: it ends with a node, and is not so long
// that a call which moves it would be slow.
bool may_grow(const TokenSpan& span, int32_t pages, size_t words_per_page);

// Make room for more pages. If memory runs out, nothing has changed.
void reserve(TokenSpan* span, int32_t pages, size_t words_per_page);

// Add pages for which there is room.
void grow(TokenSpan* span, const uint32_t* words, int32_t pages, size_t words_per_page);

// A request for hashes: of the first `pages` of a span, whose namespace has the seed.
struct HashRequest {
    TokenSpan* span;
    int32_t pages;
    const uint8_t* seed;
    size_t seed_bytes;
};

// Compute hashes that are missing, those of earlier pages included. Many together take less time
// than one by one. If memory runs out, the hashes that were computed until then stay.
void hash_spans(const std::vector<HashRequest>& wanted, size_t words_per_page);

// The tree dropped the pages from `pages` on.
void shorten(TokenSpan* span, int32_t pages, size_t words_per_page);

// A pending event refers to the span: no page of it goes until the event is taken.
inline void pin(TokenSpan* span) { ++span->pins; }
void unpin(TokenSpan* span, size_t words_per_page);

// Pages that have hashes for storage.
inline int32_t hashed_for_storage(const TokenSpan& span) {
    const SpanHashes* hashes = span.hashes.get();
    return hashes == nullptr || hashes->for_storage == nullptr ? 0 : hashes->for_storage->hashed;
}

// Whether what a span says of itself is possible.
inline bool is_sound(const TokenSpan& span) {
    return 0 <= span.needed && span.needed <= span.pages && 0 <= span.hashed() &&
           span.hashed() <= span.pages && (span.hashed() == 0 || span.above() == nullptr) &&
           0 <= hashed_for_storage(span) && hashed_for_storage(span) <= span.pages &&
           (span.hashes == nullptr || span.hashes->batch_index == -1);
}

inline const uint8_t* hash_of(const TokenSpan* span, int32_t page) {
    assert(0 <= page && page < span->hashed());
    return span->hashes->of_pages + static_cast<size_t>(page) * HASH_BYTES;
}

// The hash before a page that has one itself; nullptr where no page is before.
inline const uint8_t* hash_before(const TokenSpan* span, int32_t page) {
    assert(0 <= page && page < span->hashed());
    if (page != 0) return hash_of(span, page - 1);
    return span->hashes->has_parent ? span->hashes->parent : nullptr;
}

}  // namespace kvcanon
