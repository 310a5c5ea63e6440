// How the player writes to the store below the host and fetches from there, and what it expects of
// the pages that count as stored.
#include <algorithm>

#include "host_insert.hpp"
#include "player.hpp"
#include "transfer.hpp"

namespace kvcanon::fuzz {

namespace {

Key key_of(const Prompt& prompt, const std::vector<uint32_t>& words) {
    return {words.data(), prompt.pages, prompt.namespace_id};
}

std::string hash_in(const PageRun& run, int32_t page) {
    return {reinterpret_cast<const char*>(hash_of(run.span.get(), page)), HASH_BYTES};
}

std::string hash_before_in(const PageRun& run, int32_t page) {
    const uint8_t* hash = hash_before(run.span.get(), page);
    return hash == nullptr ? "" : std::string(reinterpret_cast<const char*>(hash), HASH_BYTES);
}

SlotLists full_only(Runs slots) {
    SlotLists lists;
    lists[FULL] = std::move(slots);
    return lists;
}

}  // namespace

// A run has the hashes of the pages of its prompt.
void Player::require_run(const Prompt& prompt, const PageRun& run) {
    if (run.pages() == 0) return;
    const std::vector<uint32_t> words = prompt.words(config_);
    const std::vector<std::string> hashes = hashes_of(state_, key_of(prompt, words));
    require(run.start + run.pages() <= prompt.pages, "an order is about more than its prompt");
    for (int32_t page = 0; page < run.pages(); ++page) {
        const auto at = static_cast<size_t>(run.start + page);
        require(hash_in(run, page) == hashes[at], "an order has the hash of another page");
        require(hash_before_in(run, page) == (at == 0 ? "" : hashes[at - 1]),
                "an order has the hash of another page before");
    }
}

void Player::order_write() {
    const Prompt some = prompt();
    const std::vector<uint32_t> words = some.words(config_);
    const std::vector<std::string> hashes = hashes_of(state_, key_of(some, words));
    const uint64_t before = digest(state_);
    Unstored found = unstored(state_, key_of(some, words));
    require(digest(state_) == before, "a question about the store changed something");
    require(found.slots.slots() == found.run.pages(), "a write has slots for other pages");
    for (int32_t page = 0; page < found.run.start; ++page) {
        require(stored_.count(hashes[static_cast<size_t>(page)]) != 0,
                "a write leaves out a page that is not stored");
    }
    if (found.run.pages() == 0) return;
    require_run(some, found.run);
    require(stored_.count(hash_in(found.run, 0)) == 0, "a write begins with a stored page");
    writes_.push_back({some, found.run, found.slots, bytes_.coin()});
    if (writes_.back().reads) {
        // One reader a slot, as the queue of a store keeps it.
        for (const Slot slot : slots_in(found.slots)) {
            if (!state_.read_by_store.contains(slot)) continue;
            writes_.back().reads = false;
            return;
        }
        begin_read(state_, found.slots);
    }
}

void Player::end_write() {
    if (writes_.empty()) return;
    const auto which =
        writes_.begin() + bytes_.below(static_cast<int>(std::min<size_t>(writes_.size(), 255)));
    if (which->reads) end_read(state_, which->slots);
    const int32_t done = bytes_.below(which->run.pages() + 1);
    const int32_t first = bytes_.below(done + 1);
    note_in_store(which->run, 0, first);
    note_in_store(which->run, first, done);
    writes_.erase(which);
}

void Player::order_fetch() {
    const Prompt some = prompt();
    const std::vector<uint32_t> words = some.words(config_);
    const uint64_t before = digest(state_);
    const PageRun run = unfetched(state_, key_of(some, words));
    require(digest(state_) == before, "a question about the store changed something");
    if (run.pages() == 0) return;
    require_run(some, run);
    Counts counts;
    counts[FULL] = run.pages();
    StoreFetch fetch{some, run, {}};
    require(attempt([&] { fetch.slots = reserve_host(state_, counts); }),
            "a fetch has no room for its pages");
    int32_t page = run.start;
    for (const Slot slot : slots_in(fetch.slots[FULL])) {
        stamps_.at(FULL, CPU, slot) = some.stamp(page++);
    }
    store_fetches_.push_back(std::move(fetch));
}

void Player::end_fetch() {
    if (store_fetches_.empty()) return;
    const auto which = store_fetches_.begin() +
                       bytes_.below(static_cast<int>(std::min<size_t>(store_fetches_.size(), 255)));
    const StoreFetch fetch = *which;
    store_fetches_.erase(which);
    const int32_t arrived = bytes_.below(fetch.run.pages() + 1);
    note_in_store(fetch.run, 0, arrived);
    if (arrived < fetch.run.pages() && bytes_.coin()) note_lost(fetch.run, arrived);
    RunReader reader(fetch.slots[FULL]);
    const SlotLists placed = full_only(reader.next(arrived));
    const SlotLists rest = full_only(reader.next(fetch.run.pages() - arrived));
    if (arrived != 0) {
        Prompt some = fetch.prompt;
        some.pages = fetch.run.start + arrived;
        const std::vector<uint32_t> words = some.words(config_);
        const bool committed =
            attempt([&] { commit_host(state_, key_of(some, words), fetch.run.start, placed); });
        if (!committed) free_slots(state_, placed, CPU);
    }
    free_slots(state_, rest, CPU);
}

// The store evicts a page by itself.
void Player::lose_some() {
    if (writes_.empty()) return;
    const PageRun& run =
        writes_[static_cast<size_t>(bytes_.below(static_cast<int>(writes_.size())))].run;
    note_lost(run, bytes_.below(run.pages()));
}

void Player::note_in_store(const PageRun& run, int32_t begin, int32_t end) {
    note_stored(state_, run, begin, end);
    for (int32_t page = begin; page < end; ++page) {
        const std::string before = hash_before_in(run, page);
        if (!before.empty() && stored_.count(before) == 0) return;
        stored_.emplace(hash_in(run, page), before);
    }
}

void Player::note_lost(const PageRun& run, int32_t page) {
    note_missing(state_, run, page);
    std::vector<std::string> gone{hash_in(run, page)};
    while (!gone.empty()) {
        const std::string each = gone.back();
        gone.pop_back();
        if (stored_.erase(each) == 0) continue;
        for (const auto& [hash, before] : stored_) {
            if (before == each) gone.push_back(hash);
        }
    }
}

void Player::look_at_store() {
    std::map<std::string, std::string> counted;
    for (const Event& event : stored_events(state_)) {
        require(event.medium == config_.store_medium, "a stored page is on another medium");
        const PageRun run{event.span};
        for (int32_t page = event.offset; page < event.offset + event.pages; ++page) {
            counted.emplace(hash_in(run, page), hash_before_in(run, page));
        }
    }
    require(counted == stored_, "other pages count as stored");
    for (const StoreWrite& write : writes_) {
        if (!write.reads) continue;
        int32_t page = write.run.start;
        for (const Slot slot : slots_in(write.slots)) {
            require(stamps_.at(FULL, CPU, slot) == write.prompt.stamp(page++),
                    "a slot that the store reads was given away");
        }
    }
    require_held_on_host();
}

// Clients hold the slots of open fetches, and those that the store reads and no node has.
void Player::require_held_on_host() {
    std::vector<Slot> ours;
    for (const StoreFetch& fetch : store_fetches_) {
        for (const Slot slot : slots_in(fetch.slots[FULL])) ours.push_back(slot);
    }
    for (const Slot slot : state_.pool(FULL, CPU).held.list()) {
        const auto found = std::find(ours.begin(), ours.end(), slot);
        if (found != ours.end()) {
            ours.erase(found);
        } else {
            require(state_.read_by_store.contains(slot), "a slot is held by nobody");
        }
    }
    require(ours.empty(), "a slot of a fetch is not held any more");
}

void Player::end_orders() {
    for (const StoreWrite& write : writes_) {
        if (write.reads) end_read(state_, write.slots);
    }
    for (const StoreFetch& fetch : store_fetches_) free_slots(state_, fetch.slots, CPU);
    writes_.clear();
    store_fetches_.clear();
}

}  // namespace kvcanon::fuzz
