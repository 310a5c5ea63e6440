#include "storage_hashes.hpp"

#include <cassert>
#include <memory>
#include <vector>

namespace kvcanon {

namespace {

// The pages of a node's span down to the node's end.
int32_t pages_of_span(const Node* node) { return node->offset + node->pages; }

// Hash the pages of a node's span down to the node's end. The page before the span has its hash.
void hash_span(State& state, const Node* node, const Node* above) {
    TokenSpan& span = *node->span.get();
    if (span.hashes == nullptr) span.hashes = std::make_unique<SpanHashes>();
    std::unique_ptr<StorageHashes>& made = span.hashes->for_storage;
    if (made == nullptr) made = std::make_unique<StorageHashes>();
    StorageHashes& kept = *made;
    kept.of_pages.reach(static_cast<size_t>(span.pages) * HASH_BYTES);
    const Namespaces::Entry& owner = state.namespaces->at(node->namespace_id);
    const auto hashed = static_cast<size_t>(kept.hashed);
    const uint8_t* before = owner.storage_seed;
    size_t before_bytes = owner.storage_seed_bytes;
    if (hashed != 0 || above->parent != nullptr) {
        before = hashed != 0 ? kept.of_pages + (hashed - 1) * HASH_BYTES
                             : storage_hash(above, above->pages - 1);
        before_bytes = HASH_BYTES;
    }
    const auto page_words = static_cast<size_t>(state.config.page_words);
    const int32_t pages = pages_of_span(node);
    hash_pages(before, before_bytes, span.words + hashed * page_words, page_words,
               static_cast<size_t>(pages) - hashed, kept.of_pages + hashed * HASH_BYTES);
    kept.hashed = pages;
    assert(is_sound(span));
}

}  // namespace

void hash_for_storage(State& state, const Node* end) {
    // A span whose hashes are missing: the lowest node of it on the path, and the node above all.
    struct Lacking {
        const Node* lowest;
        const Node* above;
    };
    std::vector<Lacking> path;
    for (const Node* node = end; node->parent != nullptr;) {
        const TokenSpan* span = node->span.get();
        if (hashed_for_storage(*span) >= pages_of_span(node)) break;
        const Node* above = node->parent;
        while (above->parent != nullptr && above->span.get() == span) above = above->parent;
        path.push_back({node, above});
        node = above;
    }
    for (; !path.empty(); path.pop_back()) {
        hash_span(state, path.back().lowest, path.back().above);
    }
}

const uint8_t* storage_hash(const Node* node, int32_t page) {
    assert(0 <= page && page < node->pages);
    assert(hashed_for_storage(*node->span.get()) > node->offset + page);
    return node->span->hashes->for_storage->of_pages +
           static_cast<size_t>(node->offset + page) * HASH_BYTES;
}

}  // namespace kvcanon
