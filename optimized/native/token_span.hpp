// A stretch: the tokens of one inserted leaf, kept once, and the names of its pages.
//
// Nodes are slices of stretches, so that a cut copies nothing: both parts refer to the same tokens.
// All slices of a stretch lie on one path, one after the other, and the tree loses nodes from their
// lower end, so that what is given up of a stretch is always its tail.
//
// What readers get wrong: a name depends on everything before the page, yet no stretch needs its
// ancestors once its first page has a name. Names are computed when somebody asks for them, and
// from where the last ones end.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "sha256.hpp"

namespace kvcanon {

// What all stretches take for tokens and names, in bytes.
inline size_t span_bytes = 0;

// Items side by side, whose number may change.
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

    void resize(size_t count) {
        const size_t bytes = count * sizeof(Item);
        void* moved = std::realloc(items_, bytes);
        // What there is no memory to make smaller stays as it is.
        if (moved == nullptr && bytes > bytes_) throw std::bad_alloc();
        if (moved == nullptr) return;
        items_ = static_cast<Item*>(moved);
        span_bytes += bytes - std::exchange(bytes_, bytes);
    }

  private:
    Item* items_ = nullptr;
    size_t bytes_ = 0;
};

struct TokenSpan {
    Block<uint32_t> words;
    // Names of the first `hashed` pages; nullptr while there are none.
    Block<uint8_t> hashes;
    int32_t pages = 0;
    int32_t hashed = 0;
    uint32_t refs = 0;
    // Events that nobody has taken yet refer to pages of the stretch: none of them may go.
    uint32_t pins = 0;
    // Pages that are still in the tree, where pins keep more than those.
    int32_t needed = 0;
    uint32_t namespace_id = 0;
    // What the first page follows, until its name is known: the page before `above_end` of `above`,
    // or the seed of the namespace.
    TokenSpan* above = nullptr;
    int32_t above_end = 0;
    // The name before the first page, for those who hear of it; valid once `hashed` is not 0.
    uint8_t parent_hash[HASH_BYTES] = {};
    bool has_parent = false;
};

// Shared ownership of a stretch, for one thread.
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

    // Give up one reference, and what nobody refers to any more up the chain.
    static void drop(TokenSpan* span) {
        while (span != nullptr && --span->refs == 0) {
            TokenSpan* above = span->above;
            delete span;
            span = above;
        }
    }

  private:
    TokenSpan* span_ = nullptr;
};

// A stretch of its own for `pages` pages of `words_per_page` words each. `above` may be nullptr.
SpanRef make_span(const uint32_t* words, int32_t pages, size_t words_per_page,
                  uint32_t namespace_id, TokenSpan* above, int32_t above_end);

// Pages that are to have names: the first `pages` of a stretch, whose namespace has the seed.
struct HashRequest {
    TokenSpan* span;
    int32_t pages;
    const uint8_t* seed;
    size_t seed_bytes;
};

// Make sure that pages have names, and what they follow, too; of many in less time than one by one.
void hash_spans(std::vector<HashRequest> wanted, size_t words_per_page);

// The tree has no use for pages from `pages` on any more.
void shorten(TokenSpan* span, int32_t pages, size_t words_per_page);

// An event refers to the stretch; until it is taken no page of it goes.
inline void pin(TokenSpan* span) { ++span->pins; }
void unpin(TokenSpan* span, size_t words_per_page);

inline const uint8_t* hash_of(const TokenSpan* span, int32_t page) {
    return span->hashes + static_cast<size_t>(page) * HASH_BYTES;
}

}  // namespace kvcanon
