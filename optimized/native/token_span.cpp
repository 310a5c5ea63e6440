#include "token_span.hpp"

#include <algorithm>
#include <cassert>

namespace kvcanon {

namespace {

// Each leaf has one. An allocation of the C library adds 8 bytes and rounds up to 16.
static_assert(sizeof(void*) != 8 || sizeof(TokenSpan) <= 56);

// A span that is longer takes no more pages: to move 256 KiB takes some tens of microseconds.
constexpr size_t MOST_GROWN_WORDS = 1 << 16;

void shrink(TokenSpan* span, size_t words_per_page) {
    const size_t pages = static_cast<size_t>(span->needed);
    if (span->needed == span->pages || pages == 0) return;
    span->words.fit(pages * words_per_page);
    span->pages = span->needed;
    if (span->hashes == nullptr) return;
    span->hashes->hashed = std::min(span->hashes->hashed, span->pages);
    if (span->hashes->of_pages != nullptr) span->hashes->of_pages.fit(pages * HASH_BYTES);
    StorageHashes* for_storage = span->hashes->for_storage.get();
    if (for_storage == nullptr) return;
    for_storage->hashed = std::min(for_storage->hashed, span->pages);
    for_storage->of_pages.fit(pages * HASH_BYTES);
}

// Whether the hash before the next page of a span is known.
bool is_next(const HashRequest& wanted) {
    const TokenSpan* above = wanted.span->above();
    return above == nullptr || above->hashed() >= wanted.span->hashes->above_end;
}

// The request for the hashes that must be known first.
HashRequest above(const HashRequest& wanted) {
    const SpanHashes& hashes = *wanted.span->hashes;
    return {hashes.above, hashes.above_end, wanted.seed, wanted.seed_bytes};
}

// The job for a span whose previous hash is known.
HashJob begin(const HashRequest& wanted, size_t words_per_page) {
    const TokenSpan* span = wanted.span;
    SpanHashes& hashes = *span->hashes;
    // Events pin their spans, so all pages above are still there.
    assert(wanted.pages <= span->pages);
    hashes.of_pages.reach(static_cast<size_t>(span->pages) * HASH_BYTES);
    if (hashes.above != nullptr) {
        hashes.has_parent = true;
        std::memcpy(hashes.parent, hash_of(hashes.above, hashes.above_end - 1), HASH_BYTES);
    }
    const auto hashed = static_cast<size_t>(hashes.hashed);
    const bool follows_page = hashed != 0 || hashes.has_parent;
    const uint8_t* before = hashed != 0         ? hash_of(span, hashes.hashed - 1)
                            : hashes.has_parent ? hashes.parent
                                                : wanted.seed;
    return {before,
            follows_page ? HASH_BYTES : wanted.seed_bytes,
            span->words + hashed * words_per_page,
            words_per_page,
            static_cast<size_t>(wanted.pages) - hashed,
            hashes.of_pages + hashed * HASH_BYTES};
}

// Requests whose spans know their place in it, until their hashes are there or the batch is given
// up.
class Batch : public std::vector<HashRequest> {
  public:
    Batch() = default;
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    ~Batch() {
        for (const HashRequest& each : *this) {
            if (each.span != nullptr) each.span->hashes->batch_index = -1;
        }
    }
};

// Add a request to a batch, and requests for the spans above that must be hashed before it. A batch
// has one request for each span, for the most pages that are wanted of it.
void add_with_above(Batch& batch, HashRequest wanted) {
    while (wanted.span->hashed() < wanted.pages) {
        std::unique_ptr<SpanHashes>& hashes = wanted.span->hashes;
        if (hashes == nullptr) hashes = std::make_unique<SpanHashes>();
        if (hashes->batch_index >= 0) {
            int32_t& pages = batch[static_cast<size_t>(hashes->batch_index)].pages;
            pages = std::max(pages, wanted.pages);
            return;
        }
        batch.push_back(wanted);
        hashes->batch_index = static_cast<int32_t>(batch.size()) - 1;
        if (is_next(wanted)) return;
        wanted = above(wanted);
    }
}

// The requests of a batch by level: those of a level depend on the level before and on no other, so
// that they are computed together.
std::vector<std::vector<HashRequest>> by_level(const Batch& batch) {
    std::vector<int32_t> levels(batch.size(), -1);
    std::vector<std::vector<HashRequest>> sorted;
    std::vector<size_t> chain;
    for (size_t each = 0; each < batch.size(); ++each) {
        int32_t level = -1;
        for (size_t at = each;;) {
            level = levels[at];
            if (level >= 0) break;
            chain.push_back(at);
            if (is_next(batch[at])) break;
            at = static_cast<size_t>(batch[at].span->above()->hashes->batch_index);
        }
        for (; !chain.empty(); chain.pop_back()) {
            levels[chain.back()] = ++level;
            if (sorted.size() == static_cast<size_t>(level)) sorted.emplace_back();
            sorted[static_cast<size_t>(level)].push_back(batch[chain.back()]);
        }
    }
    return sorted;
}

void end(Batch& batch, const HashRequest& wanted) {
    SpanHashes& hashes = *wanted.span->hashes;
    const auto place = static_cast<size_t>(std::exchange(hashes.batch_index, -1));
    // The span may be deleted below, once the last span that follows it has its hashes.
    batch[place].span = nullptr;
    assert(wanted.pages <= wanted.span->pages);
    hashes.hashed = wanted.pages;
    SpanRef::drop(std::exchange(hashes.above, nullptr));
}

}  // namespace

SpanRef make_span(const uint32_t* words, int32_t pages, size_t words_per_page,
                  Namespaces& namespaces, uint32_t namespace_id, TokenSpan* above,
                  int32_t above_end) {
    SpanRef made(new TokenSpan(namespaces, namespace_id));
    const size_t count = static_cast<size_t>(pages) * words_per_page;
    made->words.resize(count);
    std::memcpy(made->words, words, count * sizeof(uint32_t));
    made->pages = made->needed = pages;
    if (above != nullptr) {
        made->hashes = std::make_unique<SpanHashes>();
        made->hashes->above = above;
        made->hashes->above_end = above_end;
        ++above->refs;
    }
    assert(is_sound(*made.get()));
    return made;
}

bool may_grow(const TokenSpan& span, int32_t pages, size_t words_per_page) {
    const auto grown = static_cast<size_t>(span.pages) + static_cast<size_t>(pages);
    return span.needed == span.pages && grown <= MOST_GROWN_WORDS / words_per_page;
}

void reserve(TokenSpan* span, int32_t pages, size_t words_per_page) {
    span->words.reach(static_cast<size_t>(span->pages + pages) * words_per_page);
}

void grow(TokenSpan* span, const uint32_t* words, int32_t pages, size_t words_per_page) {
    assert(may_grow(*span, pages, words_per_page));
    std::memcpy(span->words + static_cast<size_t>(span->pages) * words_per_page, words,
                static_cast<size_t>(pages) * words_per_page * sizeof(uint32_t));
    span->needed = span->pages += pages;
    assert(is_sound(*span));
}

void hash_spans(const std::vector<HashRequest>& wanted, size_t words_per_page) {
    Batch batch;
    for (const HashRequest& each : wanted) add_with_above(batch, each);
    std::vector<HashJob> jobs;
    for (const std::vector<HashRequest>& level : by_level(batch)) {
        jobs.clear();
        for (const HashRequest& each : level) jobs.push_back(begin(each, words_per_page));
        hash_pages_batch(jobs.data(), jobs.size());
        for (const HashRequest& each : level) end(batch, each);
    }
}

void shorten(TokenSpan* span, int32_t pages, size_t words_per_page) {
    assert(0 <= pages && pages <= span->needed);
    span->needed = pages;
    if (span->pins == 0) shrink(span, words_per_page);
    assert(is_sound(*span));
}

void unpin(TokenSpan* span, size_t words_per_page) {
    assert(span->pins > 0);
    if (--span->pins == 0) shrink(span, words_per_page);
    assert(is_sound(*span));
}

}  // namespace kvcanon
