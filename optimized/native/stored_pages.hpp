// The pages that are known to be in the store below the host.
//
// They are closed under prefixes: the page before a stored page is stored, too. Where one leaves,
// those that follow it leave first.
#pragma once

#include <array>
#include <map>

#include "token_span.hpp"

namespace kvcanon {

using PageHash = std::array<uint8_t, HASH_BYTES>;

struct StoredPage {
    // Has the tokens and the hash of the page, and the hash of the page before.
    SpanRef span;
    int32_t page = 0;
    // The page before, which is stored, too; nullptr for the first page of a prompt.
    StoredPage* parent = nullptr;
    // The pages that follow it, in the order in which they came to count.
    StoredPage *first_follower = nullptr, *last_follower = nullptr;
    // Its neighbours among those that follow its parent.
    StoredPage *previous = nullptr, *next = nullptr;
    // Its neighbours among all stored pages, in the order in which they came to count.
    StoredPage *earlier = nullptr, *later = nullptr;
};

class StoredPages {
  public:
    // The page with a hash; nullptr where it is not stored.
    StoredPage* find(const uint8_t* hash);
    // Add a page that is not stored, below its parent. If memory runs out, nothing has changed.
    StoredPage& add(const SpanRef& span, int32_t page, StoredPage* parent);
    // Remove a page that nothing follows.
    void remove(StoredPage* page);
    void clear();

    const StoredPage* first() const { return first_; }
    size_t size() const { return pages_.size(); }

  private:
    // A tree, since a hash table of very many pages would stop one call to grow.
    std::map<PageHash, StoredPage> pages_;
    StoredPage *first_ = nullptr, *last_ = nullptr;
};

}  // namespace kvcanon
