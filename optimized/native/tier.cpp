#include "tier.hpp"

#include <algorithm>
#include <cassert>

#include "emit.hpp"
#include "slots.hpp"
#include "tree.hpp"

namespace kvcanon {

namespace {

// The hashes of the first `end` pages of a key. Those that the tree has are not computed again; the
// others are not kept there, since a question changes no node.
std::vector<uint8_t> hashes_of(const State& state, const Key& key, const Path& path, int32_t end) {
    std::vector<uint8_t> hashes(static_cast<size_t>(end) * HASH_BYTES);
    int32_t known = 0;
    for (const Stop& stop : path) {
        const TokenSpan* span = stop.node->span.get();
        const int32_t pages = std::min(stop.shared, end - known);
        if (pages <= 0 || span->hashed() < stop.node->offset + pages) break;
        std::copy_n(hash_of(span, stop.node->offset), static_cast<size_t>(pages) * HASH_BYTES,
                    hashes.data() + static_cast<size_t>(known) * HASH_BYTES);
        known += pages;
    }
    if (known == end) return hashes;
    const Namespaces::Entry& owner = state.namespaces->at(key.namespace_id);
    const size_t done = static_cast<size_t>(known) * HASH_BYTES;
    const uint8_t* before = known != 0 ? hashes.data() + done - HASH_BYTES : owner.seed;
    hash_pages(before, known != 0 ? HASH_BYTES : owner.seed_bytes, key.page(known, state.config),
               static_cast<size_t>(state.config.page_words), static_cast<size_t>(end - known),
               hashes.data() + done);
    return hashes;
}

// The pages of a key from `start` on that `hashes` reaches, which begin with its first page.
PageRun run_of(State& state, const Key& key, int32_t start, const std::vector<uint8_t>& hashes) {
    const auto end = static_cast<int32_t>(hashes.size() / HASH_BYTES);
    PageRun run;
    run.start = start;
    if (start >= end) return run;
    run.span = make_span(key.page(start, state.config), end - start,
                         static_cast<size_t>(state.config.page_words), *state.namespaces,
                         key.namespace_id, nullptr, 0);
    run.span->hashes = std::make_unique<SpanHashes>();
    SpanHashes& own = *run.span->hashes;
    const uint8_t* first = hashes.data() + static_cast<size_t>(start) * HASH_BYTES;
    own.of_pages.resize(static_cast<size_t>(end - start) * HASH_BYTES);
    std::copy_n(first, static_cast<size_t>(end - start) * HASH_BYTES,
                static_cast<uint8_t*>(own.of_pages));
    own.hashed = end - start;
    own.has_parent = start != 0;
    if (own.has_parent) std::copy_n(first - HASH_BYTES, HASH_BYTES, own.parent);
    return run;
}

// Add an event of a page to one of its neighbours in the span, where the last one is that.
void append(std::vector<Event>& events, EventKind kind, Medium medium, const StoredPage& page) {
    const bool removed = kind == EventKind::REMOVED;
    if (!events.empty() && events.back().span.get() == page.span.get()) {
        Event& last = events.back();
        const int32_t next = removed ? last.offset - 1 : last.offset + last.pages;
        if (page.page == next) {
            if (removed) --last.offset;
            ++last.pages;
            return;
        }
    }
    events.push_back({kind, medium, page.span, page.page, 1});
}

// A page and those that follow it: whatever follows a page comes after it.
std::vector<StoredPage*> with_followers(StoredPage* page) {
    std::vector<StoredPage*> leaving, waiting{page};
    while (!waiting.empty()) {
        leaving.push_back(waiting.back());
        waiting.pop_back();
        for (StoredPage* each = leaving.back()->first_follower; each != nullptr;
             each = each->next) {
            waiting.push_back(each);
        }
    }
    return leaving;
}

}  // namespace

Unstored unstored(State& state, const Key& key) {
    Runs on_host;
    const Path path = walk(state, key);
    for (const Stop& stop : path) {
        const Data& full = stop.node->data[FULL];
        if (!full.resident(CPU)) break;
        on_host.append(RunReader(full.slots(CPU)).next(stop.shared));
    }
    const std::vector<uint8_t> hashes = hashes_of(state, key, path, on_host.slots());
    int32_t start = 0;
    while (start < on_host.slots() &&
           state.stored.find(hashes.data() + static_cast<size_t>(start) * HASH_BYTES) != nullptr) {
        ++start;
    }
    RunReader slots(on_host);
    slots.skip(start);
    return {run_of(state, key, start, hashes), slots.next(on_host.slots() - start)};
}

PageRun unfetched(State& state, const Key& key) {
    int32_t start = 0;
    const Path path = walk(state, key);
    for (const Stop& stop : path) {
        const Data& full = stop.node->data[FULL];
        const bool will_do = !state.config.backed_parents() && full.resident(GPU);
        if (!will_do && !full.resident(CPU)) break;
        start += stop.shared;
    }
    const int64_t count = std::min<int64_t>(key.pages - start, state.free_slots(FULL, CPU));
    const auto end = static_cast<int32_t>(start + count);
    if (count == 0) return {SpanRef(), start};
    return run_of(state, key, start, hashes_of(state, key, path, end));
}

void note_stored(State& state, const PageRun& run, int32_t begin, int32_t end) {
    std::vector<Event> events;
    TokenSpan* span = run.span.get();
    for (int32_t page = begin; page < end; ++page) {
        const uint8_t* before = hash_before(span, page);
        StoredPage* parent = before == nullptr ? nullptr : state.stored.find(before);
        if (before != nullptr && parent == nullptr) break;
        if (state.stored.find(hash_of(span, page)) != nullptr) continue;
        state.changed = true;
        append(events, EventKind::STORED, state.config.store_medium,
               state.stored.add(run.span, page, parent));
    }
    for (const Event& event : events) emit_in_store(state, event);
}

void note_missing(State& state, const PageRun& run, int32_t page) {
    StoredPage* missing = state.stored.find(hash_of(run.span.get(), page));
    if (missing == nullptr) return;
    const std::vector<StoredPage*> leaving = with_followers(missing);
    std::vector<Event> events;
    state.changed = true;
    for (auto each = leaving.rbegin(); each != leaving.rend(); ++each) {
        append(events, EventKind::REMOVED, state.config.store_medium, **each);
        state.stored.remove(*each);
    }
    for (const Event& event : events) emit_in_store(state, event);
}

std::vector<Event> stored_events(const State& state) {
    std::vector<Event> events;
    for (const StoredPage* page = state.stored.first(); page != nullptr; page = page->later) {
        append(events, EventKind::STORED, state.config.store_medium, *page);
    }
    return events;
}

}  // namespace kvcanon
