#include "player.hpp"

#include <algorithm>
#include <limits>

#include "check.hpp"
#include "errors.hpp"
#include "evict.hpp"
#include "host_insert.hpp"
#include "insert.hpp"
#include "load.hpp"
#include "lock.hpp"
#include "match.hpp"
#include "reset.hpp"
#include "transfer.hpp"

namespace kvcanon::fuzz {

namespace {

constexpr int MOST_PAGES = 7;

Counts some_counts(Bytes& bytes, int full, int swa, int mamba) {
    Counts counts;
    counts[FULL] = bytes.below(full);
    counts[SWA] = bytes.below(swa);
    counts[MAMBA] = bytes.below(mamba);
    return counts;
}

Config some_config(Bytes& bytes) {
    constexpr int WINDOWS[] = {0, 1, 2, 3, 5, 100};
    Config config;
    config.page_size = 1 + bytes.below(2);
    config.page_words = config.page_size * (1 + bytes.below(2));
    config.window_tokens = WINDOWS[bytes.below(6)];
    config.mamba = bytes.coin();
    config.device_slots = some_counts(bytes, 14, 10, 4);
    // Nothing is drawn for it, so that inputs that are kept mean the same.
    for (const Component component : {FULL, SWA, MAMBA}) {
        config.padding_slots[component] = config.device_slots[component] / 8;
    }
    config.write_policy = static_cast<WritePolicy>(bytes.below(4));
    if (config.host_tier()) config.host_slots = some_counts(bytes, 14, 10, 4);
    config.eviction_policy = static_cast<EvictionPolicy>(bytes.below(7));
    config.load_back_threshold_pages = bytes.below(3);
    const int events = bytes.below(4);
    config.events = events != 0;
    // So few that a router often has to begin anew.
    if (events == 1) config.max_pending_events = 1 + bytes.below(8);
    // Nearly all pages share their hash, or none do.
    config.tag_bits = bytes.coin() ? 1 : 32;
    config.has_store = config.host_tier() && bytes.coin();
    config.store_medium = bytes.coin() ? DISK : EXTERNAL;
    return config;
}

Key key_of(const Prompt& prompt, const std::vector<uint32_t>& words) {
    return {words.data(), prompt.pages, prompt.namespace_id};
}

Prompt first_pages(Prompt prompt, int32_t pages) {
    prompt.pages = pages;
    return prompt;
}

}  // namespace

Player::Player(Bytes& bytes)
    : bytes_(bytes),
      config_(some_config(bytes)),
      stamps_(config_),
      engine_(stamps_),
      state_(config_, &engine_) {
    engine_.ranked = bytes.coin();
    const uint8_t seed[HASH_BYTES] = {};
    state_.namespaces->add("default", seed, 0);
    name_other();
}

// Prompts know the second namespace by its index, which a reset may have freed.
void Player::name_other() {
    const uint8_t seed[HASH_BYTES] = {1, 2, 3};
    if (!state_.namespaces->find("other")) state_.namespaces->add("other", seed, HASH_BYTES);
}

void Player::play() {
    while (!bytes_.empty()) {
        broke_off_ = false;
        step();
        look();
    }
}

void Player::step() {
    switch (bytes_.below(config_.has_store ? 28 : 20)) {
        case 0: return match_some();
        case 1: return lock_some();
        case 2: return unlock_some(false);
        case 3: return unlock_some(true);
        case 4:
        case 5:
        case 6:
        case 7: return insert_some();
        case 8: return hold_some();
        case 9: return free_some();
        case 10: return evict_some(GPU);
        case 11: return evict_some(CPU);
        case 12: return load_some();
        case 13: return fetch_some();
        case 14: return complete_some();
        case 15: return settle_some();
        case 16: return static_cast<void>(attempt([&] { flush(state_); }));
        case 17:
            if (attempt([&] { reset(state_); })) stored_.clear();
            return name_other();
        case 18: return hearer_.require_true(state_);
        case 19: return call_wrongly();
        case 20:
        case 21: return order_write();
        case 22:
        case 23: return end_write();
        case 24: return order_fetch();
        case 25:
        case 26: return end_fetch();
        default: return lose_some();
    }
}

void Player::look() {
    engine_.disarm();
    check(state_);
    require_lawful(state_);
    require_stamped(state_, stamps_);
    for (const Component component : {FULL, SWA, MAMBA}) {
        std::vector<Slot> ours;
        for (Slot slot = 0; slot < config_.padding(component, GPU); ++slot) ours.push_back(slot);
        for (const SlotLists& slots : held_) {
            for (const Slot slot : slots_in(slots[component])) ours.push_back(slot);
        }
        std::sort(ours.begin(), ours.end());
        require(ours == state_.pool(component, GPU).held.list(), "requests hold other slots");
    }
    require(receipts_.size() + state_.transfers.size() == state_.holds.size(),
            "a receipt is open that no request has");
    require(engine_.open_orders() <= state_.transfers.size(), "an order has no transfer");
    look_at_store();
}

Prompt Player::prompt() {
    const int shape = bytes_.next();
    return {static_cast<uint32_t>(shape & 1), (shape >> 1) % (MOST_PAGES + 1), bytes_.next()};
}

int32_t Player::match_and_look(const Prompt& prompt, int32_t& device_pages) {
    const std::vector<uint32_t> words = prompt.words(config_);
    const Matched found = match(state_, key_of(prompt, words));
    device_pages = found.device_pages;
    require(found.slots[FULL].slots() == device_pages, "a match gives slots for other pages");
    require(found.slots[SWA].slots() >= std::min<int64_t>(device_pages, config_.window_pages()),
            "a match ends where the window is not whole");
    require(found.slots[MAMBA].slots() == (config_.mamba && device_pages != 0 ? 1 : 0),
            "a match ends where there is no state");
    for (const Component component : {FULL, SWA, MAMBA}) {
        const std::vector<Slot> slots = slots_in(found.slots[component]);
        // The last slot is the last page's.
        int32_t page = device_pages - static_cast<int32_t>(slots.size());
        require(page >= 0, "a match gives slots for more pages than it found");
        for (const Slot slot : slots) {
            require(stamps_.at(component, GPU, slot) == prompt.stamp(page++),
                    "other bytes are behind a matched slot");
        }
    }
    return found.prefix_pages;
}

void Player::match_some() {
    int32_t device_pages;
    match_and_look(prompt(), device_pages);
}

void Player::lock_some() {
    Prompt some = prompt();
    int32_t device_pages;
    const int32_t prefix_pages = match_and_look(some, device_pages);
    if (bytes_.coin()) some.pages = prefix_pages;
    const std::vector<uint32_t> words = some.words(config_);
    attempt([&] { receipts_.push_back(lock(state_, key_of(some, words))); });
}

void Player::unlock_some(bool window_only) {
    if (receipts_.empty()) return;
    const auto which =
        receipts_.begin() + bytes_.below(static_cast<int>(std::min<size_t>(receipts_.size(), 255)));
    if (window_only) return unlock_window(state_, *which);
    unlock(state_, *which);
    receipts_.erase(which);
}

SlotLists Player::allocate_some(const Counts& counts) {
    SlotLists slots;
    if (attempt([&] { slots = allocate(state_, counts); })) return slots;
    const Counts short_of = shortage(counts, free_slot_counts(state_, GPU));
    attempt([&] { evict(state_, short_of); });
    attempt([&] { slots = allocate(state_, counts); });
    return slots;
}

void Player::free_all(const SlotLists& slots) {
    require(attempt([&] { free_slots(state_, slots); }), "slots that a request holds are refused");
}

void Player::write(const Prompt& prompt, int32_t start, const SlotLists& slots) {
    for (const Component component : {FULL, SWA, MAMBA}) {
        const std::vector<Slot> some = slots_in(slots[component]);
        int32_t page = prompt.pages - static_cast<int32_t>(some.size());
        require(component != FULL || page == start, "allocated slots miscounted");
        for (const Slot slot : some) stamps_.at(component, GPU, slot) = prompt.stamp(page++);
    }
}

Runs Player::without_first(const Runs& swa) {
    if (!swa) return swa;
    RunReader reader(swa);
    SlotLists gone;
    gone[SWA] = reader.next(1 + bytes_.below(swa.slots()));
    free_all(gone);
    return reader.next(swa.slots() - gone[SWA].slots());
}

void Player::insert_some() {
    const Prompt some = prompt();
    int32_t device_pages;
    match_and_look(some, device_pages);
    // Mostly from where the cached data ends; else the request has computed duplicates.
    const int32_t start = bytes_.coin() ? device_pages : bytes_.below(device_pages + 1);
    Counts counts;
    counts[FULL] = some.pages - start;
    if (config_.swa())
        counts[SWA] = counts[FULL] - bytes_.below(static_cast<int>(counts[FULL]) + 1);
    if (config_.mamba && counts[FULL] > 0) counts[MAMBA] = bytes_.below(2);
    const int64_t counted = bytes_.below(some.pages + 1), priority = bytes_.below(3);
    SlotLists slots = allocate_some(counts);
    if (slots[FULL].slots() != counts[FULL]) return;
    write(some, start, slots);
    if (bytes_.below(4) == 0) slots[SWA] = without_first(slots[SWA]);
    const std::vector<uint32_t> words = some.words(config_);
    if (bytes_.below(16) == 0) engine_.arm();
    const bool inserted =
        attempt([&] { insert(state_, key_of(some, words), start, slots, counted, priority); });
    // If the engine raised, the tree owns the slots already.
    if (!inserted && !broke_off_) free_all(slots);
}

void Player::hold_some() {
    const Counts counts = some_counts(bytes_, 5, 4, 2);
    SlotLists slots;
    if (attempt([&] { slots = allocate(state_, counts); })) held_.push_back(slots);
}

void Player::free_some() {
    if (held_.empty()) return;
    const auto which =
        held_.begin() + bytes_.below(static_cast<int>(std::min<size_t>(held_.size(), 255)));
    free_all(*which);
    held_.erase(which);
}

void Player::evict_some(Medium medium) {
    const Counts counts = some_counts(bytes_, 15, 11, 5);
    if (bytes_.below(8) == 0) engine_.arm();
    attempt([&] {
        const Counts before = free_slot_counts(state_, medium);
        const Counts freed = medium == GPU ? evict(state_, counts) : evict_host(state_, counts);
        for (const Component component : {FULL, SWA, MAMBA}) {
            require(freed[component] == state_.free_slots(component, medium) - before[component],
                    "other slots came free than an eviction says");
        }
    });
}

void Player::load_some() {
    const Prompt some = prompt();
    int32_t device_pages;
    const int32_t prefix_pages = match_and_look(some, device_pages);
    const Prompt cached = first_pages(some, bytes_.below(4) == 0 ? some.pages : prefix_pages);
    const std::vector<uint32_t> words = cached.words(config_);
    const int quota = bytes_.below(MOST_PAGES + 2) - 1;
    if (bytes_.below(16) == 0) engine_.arm();
    attempt([&] { load_back(state_, key_of(cached, words), quota); });
}

void Player::fetch_some() {
    const Prompt some = prompt();
    const int32_t start = bytes_.below(some.pages + 1);
    Counts payloads;
    payloads[FULL] = some.pages - start;
    if (config_.swa()) payloads[SWA] = bytes_.below(static_cast<int>(payloads[FULL]) + 1);
    if (config_.mamba && payloads[FULL] != 0) payloads[MAMBA] = bytes_.below(2);
    if (fetches_++ % 2 != 0) return commit_some(some, start, payloads);
    const std::vector<uint32_t> words = some.words(config_);
    attempt([&] {
        const HostInserted done = insert_host(state_, key_of(some, words), start, payloads);
        require(done.placed_pages + done.refilled_pages + done.present_pages + done.dropped_pages ==
                    payloads[FULL],
                "fetched pages miscounted");
        for (const Placement& each : done.placements) {
            auto page = static_cast<int32_t>(some.pages - payloads[each.component] + each.first);
            for (const Slot slot : slots_in(each.slots)) {
                stamps_.at(each.component, CPU, slot) = some.stamp(page++);
            }
        }
    });
}

// The same with host slots that the client has filled before.
void Player::commit_some(const Prompt& some, int32_t start, const Counts& payloads) {
    SlotLists slots;
    const int32_t held_before = state_.pool(FULL, CPU).held.size();
    if (!attempt([&] { slots = reserve_host(state_, payloads); })) return;
    for (const Component component : {FULL, SWA, MAMBA}) {
        auto page = static_cast<int32_t>(some.pages - payloads[component]);
        for (const Slot slot : slots_in(slots[component])) {
            stamps_.at(component, CPU, slot) = some.stamp(page++);
        }
    }
    check(state_);
    const std::vector<uint32_t> words = some.words(config_);
    const bool committed = attempt([&] {
        const HostInserted done = commit_host(state_, key_of(some, words), start, slots);
        require(done.placed_pages + done.refilled_pages + done.present_pages + done.dropped_pages ==
                    payloads[FULL],
                "committed pages miscounted");
    });
    if (!committed) {
        require(attempt([&] { free_slots(state_, slots, CPU); }), "reserved slots are refused");
    }
    require(state_.pool(FULL, CPU).held.size() == held_before, "slots are still reserved");
    for (const Component component : {SWA, MAMBA}) {
        require(state_.pool(component, CPU).held.size() == 0, "slots are still reserved");
    }
    host_slots(state_, key_of(some, words));
}

// Each of these calls is refused in every state.
void Player::call_wrongly() {
    const Prompt some = prompt();
    const std::vector<uint32_t> words = some.words(config_);
    const Key key = key_of(some, words);
    const int64_t wild = bytes_.coin() ? int64_t{1} << 62 : -1 - bytes_.below(3);
    SlotLists slots;
    slots[FULL].append({static_cast<Slot>(bytes_.next()) - 100, 1 + bytes_.below(200)});
    for (const SlotLists& ours : held_) slots[FULL].append(ours[FULL]);
    Counts counts;
    counts[bytes_.below(COMPONENTS)] = wild;
    const bool passed[] = {
        attempt([&] { allocate(state_, counts); }),
        attempt([&] { free_slots(state_, slots); }),
        attempt([&] { insert(state_, key, wild, slots, 0, 0); }),
        attempt([&] { insert(state_, key, 0, slots, wild, 0); }),
        attempt([&] { insert_host(state_, key, wild, counts); }),
        attempt([&] { unlock(state_, static_cast<uint64_t>(wild)); }),
        attempt([&] { unlock_window(state_, static_cast<uint64_t>(wild)); }),
    };
    for (const bool each : passed) require(!each, "a wrong call was not refused");
}

void Player::drain() {
    engine_.failing = false;
    while (engine_.open_orders() != 0) engine_.complete(0, true);
    flush(state_);
    end_orders();
    for (const uint64_t receipt : receipts_) unlock(state_, receipt);
    for (const SlotLists& slots : held_) free_all(slots);
    receipts_.clear();
    held_.clear();
    hearer_.require_true(state_);
    // The largest possible counts.
    Counts all;
    for (int64_t& count : all.of) count = std::numeric_limits<int64_t>::max();
    evict(state_, all);
    evict_host(state_, all);
    check(state_);
    hearer_.require_true(state_);
    require(state_.node_count == 0, "nodes are left");
    for (const Component component : {FULL, SWA, MAMBA}) {
        for (const Medium medium : {GPU, CPU}) {
            const int64_t usable =
                config_.capacity(component, medium) - config_.padding(component, medium);
            require(state_.free_slots(component, medium) == usable, "slots are left");
        }
    }
    require(state_.holds.empty() && state_.transfers.empty(), "receipts are left");
}

}  // namespace kvcanon::fuzz
