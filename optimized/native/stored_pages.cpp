#include "stored_pages.hpp"

#include <algorithm>
#include <cassert>

namespace kvcanon {

namespace {

PageHash named(const uint8_t* hash) {
    PageHash name;
    std::copy_n(hash, HASH_BYTES, name.begin());
    return name;
}

}  // namespace

StoredPage* StoredPages::find(const uint8_t* hash) {
    const auto found = pages_.find(named(hash));
    return found == pages_.end() ? nullptr : &found->second;
}

StoredPage& StoredPages::add(const SpanRef& span, int32_t page, StoredPage* parent) {
    StoredPage& added = pages_.try_emplace(named(hash_of(span.get(), page))).first->second;
    assert(!added.span);
    added.span = span;
    added.page = page;
    added.parent = parent;
    added.earlier = last_;
    (last_ == nullptr ? first_ : last_->later) = &added;
    last_ = &added;
    if (parent != nullptr) {
        added.previous = parent->last_follower;
        (added.previous == nullptr ? parent->first_follower : added.previous->next) = &added;
        parent->last_follower = &added;
    }
    return added;
}

void StoredPages::remove(StoredPage* page) {
    assert(page->first_follower == nullptr);
    (page->earlier == nullptr ? first_ : page->earlier->later) = page->later;
    (page->later == nullptr ? last_ : page->later->earlier) = page->earlier;
    if (StoredPage* parent = page->parent; parent != nullptr) {
        (page->previous == nullptr ? parent->first_follower : page->previous->next) = page->next;
        (page->next == nullptr ? parent->last_follower : page->next->previous) = page->previous;
    }
    pages_.erase(named(hash_of(page->span.get(), page->page)));
}

void StoredPages::clear() {
    pages_.clear();
    first_ = last_ = nullptr;
}

}  // namespace kvcanon
