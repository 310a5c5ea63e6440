#include "world.hpp"

#include <algorithm>
#include <numeric>

#include "emit.hpp"
#include "evict.hpp"
#include "host_insert.hpp"
#include "insert.hpp"
#include "load.hpp"
#include "lock.hpp"
#include "match.hpp"
#include "nodes.hpp"
#include "reset.hpp"
#include "transfer.hpp"

namespace kvcanon::faults {

namespace {

constexpr int MOST_PAGES = 6;
// The kinds from this one on concern a store; those after the last are inserts.
constexpr int FIRST_OF_STORE = 18;
constexpr int LAST_OF_STORE = 24;
constexpr int KINDS = 28;

int below(std::mt19937& random, int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
}

Counts counts_of(const int* numbers, int full, int swa, int mamba) {
    Counts counts;
    counts[FULL] = numbers[0] % full;
    counts[SWA] = numbers[1] % swa;
    counts[MAMBA] = numbers[2] % mamba;
    return counts;
}

}  // namespace

Config drawn_config(std::mt19937& random) {
    Config config;
    config.page_words = config.page_size = 1 + below(random, 2);
    config.window_tokens = below(random, 2) * (1 + below(random, 4));
    config.mamba = below(random, 2) == 0;
    config.write_policy = static_cast<WritePolicy>(below(random, 4));
    for (const Component component : ALL_COMPONENTS) {
        config.device_slots[component] = config.has(component) ? 4 + below(random, 10) : 0;
        if (config.host_tier() && config.has(component)) {
            config.host_slots[component] = 2 + below(random, 10);
        }
    }
    config.eviction_policy = static_cast<EvictionPolicy>(below(random, 7));
    config.events = below(random, 4) != 0;
    if (below(random, 2) == 0) config.max_pending_events = 1 + below(random, 12);
    config.has_store = config.host_tier() && below(random, 2) == 0;
    return config;
}

Call drawn_call(std::mt19937& random) {
    Call call{below(random, KINDS),
              {static_cast<uint32_t>(below(random, 2)), 1 + below(random, MOST_PAGES),
               static_cast<uint32_t>(below(random, 16))},
              {}};
    for (int& number : call.numbers) number = below(random, 1 << 16);
    return call;
}

World::World(const Config& drawn)
    : config(drawn), stamps(drawn), engine(stamps), state(drawn, &engine) {
    const uint8_t seed[HASH_BYTES] = {};
    state.namespaces->add("default", seed, 0);
    emit_cleared(state);
}

Key World::key_of(const fuzz::Prompt& prompt, const std::vector<uint32_t>& words) {
    uint32_t index = 0;
    if (prompt.namespace_id != 0) {
        const uint8_t seed[HASH_BYTES] = {1, 2, 3};
        const auto known = state.namespaces->find("other");
        index = known ? *known : state.namespaces->add("other", seed, HASH_BYTES);
    }
    return {words.data(), prompt.pages, index};
}

// Make a call of the cache, in which an allocation may fail.
template <typename Work>
auto World::ask(Work work) {
    const Turn turn(gate);
    const FailingMemory memory(failing < 0 ? 1L << 40 : failing, fails);
    return with_memory(state, gate, work);
}

void World::note(const SlotLists& slots) {
    for (const Component component : ALL_COMPONENTS) {
        for (const Run& run : slots[component]) {
            note(run.begin);
            note(run.size);
        }
    }
}

void World::quietly(const std::function<void()>& work) {
    const long asked = std::exchange(failing, -1);
    try {
        work();
    } catch (const CacheError&) {}
    failing = asked;
}

void World::play(const Call& call) {
    const std::function<void()> prepared = prepare(call);
    try {
        prepared();
    } catch (const CacheError&) {
        note(-1);
    }
}

std::function<void()> World::prepare_insert(const Call& call) {
    const std::vector<uint32_t> words = call.prompt.words(config);
    const Key key = key_of(call.prompt, words);
    int64_t start = 0;
    SlotLists slots;
    bool ready = false;
    quietly([&] {
        start = match(state, key).device_pages;
        Counts counts;
        counts[FULL] = key.pages - start;
        if (config.swa()) counts[SWA] = call.numbers[0] % (counts[FULL] + 1);
        if (config.mamba && counts[FULL] > 0) counts[MAMBA] = call.numbers[1] % 2;
        evict(state, shortage(counts, free_slot_counts(state, GPU)));
        slots = allocate(state, counts);
        ready = true;
    });
    if (!ready) return [] {};
    return [this, call, words, start, slots, index = key.namespace_id] {
        const Key again{words.data(), call.prompt.pages, index};
        try {
            const Inserted done =
                ask([&] { return insert(state, again, start, slots, 0, call.numbers[2] % 3); });
            note(done.present_pages);
            note(done.backup_declined_pages);
        } catch (const CacheError&) {
            quietly([&] { free_slots(state, slots); });
            throw;
        }
    };
}

std::function<void()> World::prepare(const Call& call) {
    const auto words = std::make_shared<std::vector<uint32_t>>(call.prompt.words(config));
    const Key key = key_of(call.prompt, *words);
    const int* n = call.numbers;
    if (call.kind >= FIRST_OF_STORE && call.kind <= LAST_OF_STORE) {
        return config.has_store ? prepare_for_store(call, key, words) : [] {};
    }
    const auto one_of = [&](size_t count) { return static_cast<size_t>(n[3]) % count; };
    switch (call.kind) {
        case 0:
        case 1:
            return [this, words, key] {
                const Matched found = ask([&] { return match(state, key); });
                note(found.prefix_pages);
                note(found.slots);
            };
        case 2:
            return
                [this, words, key] { receipts.push_back(ask([&] { return lock(state, key); })); };
        case 3:
        case 4: {
            if (receipts.empty()) return [] {};
            const size_t at = one_of(receipts.size());
            const bool window = call.kind == 4;
            return [this, at, window] {
                const uint64_t receipt = receipts[at];
                ask([&] { window ? unlock_window(state, receipt) : unlock(state, receipt); });
                if (!window) receipts.erase(receipts.begin() + static_cast<std::ptrdiff_t>(at));
            };
        }
        case 5: {
            Counts counts = counts_of(n, 5, 4, 2);
            return [this, counts] {
                held.push_back(ask([&] { return allocate(state, counts); }));
                note(held.back());
            };
        }
        case 6: {
            if (held.empty()) return [] {};
            const size_t at = one_of(held.size());
            return [this, at] {
                ask([&] { free_slots(state, held[at]); });
                held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
            };
        }
        case 7: {
            const Counts counts = counts_of(n, 9, 7, 3);
            return [this, counts] { note(ask([&] { return evict(state, counts); })[FULL]); };
        }
        case 8: {
            const Counts counts = counts_of(n, 9, 7, 3);
            return [this, counts] { note(ask([&] { return evict_host(state, counts); })[FULL]); };
        }
        case 9:
            return [this, words, key] {
                const LoadedBack done = ask([&] { return load_back(state, key, -1); });
                note(static_cast<int64_t>(done.transfer_id));
                note(done.slots);
            };
        case 10: {
            Counts payloads;
            payloads[FULL] = call.prompt.pages;
            if (config.swa()) payloads[SWA] = n[0] % (call.prompt.pages + 1);
            if (config.mamba) payloads[MAMBA] = n[1] % 2;
            return [this, words, key, payloads] {
                note(ask([&] { return insert_host(state, key, 0, payloads); }).placed_pages);
            };
        }
        case 11:
            if (engine.open_orders() != 0) {
                engine.complete(one_of(engine.open_orders()), n[0] % 4 != 0);
            }
            return [] {};
        case 12:
            return
                [this] { note(static_cast<int64_t>(ask([&] { return settle(state); }).size())); };
        case 13:
            return [this] { note(static_cast<int64_t>(ask([&] { return flush(state); }).size())); };
        case 14: return [this] { ask([&] { reset(state); }); };
        case 15:
            return [this] {
                const auto events = ask([&] {
                    auto pending = pending_events(state);
                    forget_events(state);
                    return pending;
                });
                for (const Event& event : events) note(event.pages);
            };
        case 16: {
            const std::string name = "client " + std::to_string(n[0] % 3);
            return [this, name] {
                const uint8_t seed[HASH_BYTES] = {};
                if (state.namespaces->find(name)) return;
                ask([&] { return state.namespaces->add(name, seed, HASH_BYTES); });
            };
        }
        case 17: {
            Offered offered;
            offered.state = config.mamba && n[0] % 2 == 0;
            offered.window_from = config.swa() ? n[1] % (key.pages + 1) : 0;
            // Backwards, so that no block of the table is a run.
            std::vector<int64_t> slots(static_cast<size_t>(key.pages * config.page_size));
            std::iota(slots.rbegin(), slots.rend(), n[3]);
            return [this, words, key, offered, slots] {
                const OnRows on_rows = [&](int64_t first, const Runs& rows) {
                    token_slots.put(rows, slots.data() + first * config.page_size);
                };
                note(ask([&] { return insert_nodes(state, key, offered, on_rows); }).walked_pages);
            };
        }
        default: return prepare_insert(call);
    }
}

bool World::is_read(const Runs& slots) const {
    const std::vector<Slot> each = fuzz::slots_in(slots);
    return std::any_of(each.begin(), each.end(),
                       [this](Slot slot) { return state.read_by_store.contains(slot); });
}

std::function<void()> World::prepare_for_store(const Call& call, const Key& key,
                                               std::shared_ptr<std::vector<uint32_t>> words) {
    const int* n = call.numbers;
    const auto one_of = [&](size_t count) { return static_cast<size_t>(n[3]) % count; };
    switch (call.kind) {
        case FIRST_OF_STORE:
        case FIRST_OF_STORE + 1: {
            const bool is_lent = call.kind != FIRST_OF_STORE;
            return [this, words, key, is_lent] {
                Unstored found = ask([&] { return unstored(state, key); });
                note(found.run.pages());
                runs.push_back(found.run);
                if (!is_lent || is_read(found.slots)) return;
                ask([&] { begin_read(state, found.slots); });
                reads.push_back(found.slots);
            };
        }
        case FIRST_OF_STORE + 2: {
            if (reads.empty()) return [] {};
            const size_t at = one_of(reads.size());
            return [this, at] {
                ask([&] { end_read(state, reads[at]); });
                reads.erase(reads.begin() + static_cast<std::ptrdiff_t>(at));
            };
        }
        case FIRST_OF_STORE + 3:
            return [this, words, key] {
                const PageRun run = ask([&] { return unfetched(state, key); });
                note(run.start);
                runs.push_back(run);
            };
        case LAST_OF_STORE:
            return [this] {
                const auto events = ask([&] { return stored_events(state); });
                for (const Event& event : events) note(event.pages);
            };
        default: break;
    }
    if (runs.empty()) return [] {};
    const size_t at = one_of(runs.size());
    if (runs[at].pages() == 0) return [] {};
    const int32_t page = n[0] % runs[at].pages();
    if (call.kind == FIRST_OF_STORE + 4) {
        return [this, at, page] { ask([&] { note_missing(state, runs[at], page); }); };
    }
    return [this, at, page] { ask([&] { note_stored(state, runs[at], 0, page + 1); }); };
}

void World::end_copies() {
    while (engine.open_orders() != 0) engine.complete(0, true);
    engine.poll();
    // What they name would keep its namespace.
    runs.clear();
}

void World::drop_requests() {
    for (const SlotLists& slots : held) free_slots(state, slots);
    for (const Runs& slots : reads) end_read(state, slots);
    reads.clear();
    held.clear();
    receipts.clear();
}

}  // namespace kvcanon::faults
