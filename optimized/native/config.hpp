// The configuration of a tree: the fields of `kvcanon.spec.config.CacheConfig` that decisions
// depend on.
#pragma once

#include <cstdint>

namespace kvcanon {

enum Component : int { FULL = 0, SWA = 1, MAMBA = 2 };
// The store below the host is on one of the last two.
enum Medium : int { GPU = 0, CPU = 1, DISK = 2, EXTERNAL = 3 };
constexpr int COMPONENTS = 3;
constexpr Component ALL_COMPONENTS[COMPONENTS] = {FULL, SWA, MAMBA};
// Those that have pools, which come first.
constexpr int MEDIA = 2;

enum class WritePolicy : int { NONE, WRITE_THROUGH, WRITE_THROUGH_SELECTIVE, WRITE_BACK };
enum class EvictionPolicy : int { LRU, LFU, FIFO, MRU, FILO, SLRU, PRIORITY };

inline const char* name_of(Component component) {
    return component == FULL ? "full" : component == SWA ? "swa" : "mamba";
}

inline const char* name_of(Medium medium) { return medium == GPU ? "GPU" : "CPU_PINNED"; }

// A number of slots for each component.
struct Counts {
    int64_t of[COMPONENTS] = {0, 0, 0};

    int64_t& operator[](int component) { return of[component]; }
    int64_t operator[](int component) const { return of[component]; }
    explicit operator bool() const { return of[0] != 0 || of[1] != 0 || of[2] != 0; }
};

// Larger than any real cache; within these limits no sum of sizes overflows.
constexpr int64_t MOST_PAGE_WORDS = int64_t{1} << 30;
constexpr int64_t MOST_WINDOW_TOKENS = int64_t{1} << 60;

struct Config {
    int32_t page_size = 1;
    // 32-bit words of a page: one a token, or two a bigram.
    int32_t page_words = 1;
    // Words of a unit: 2 where units are bigrams.
    int32_t unit_words = 1;
    // 0 where the model has no sliding window.
    int64_t window_tokens = 0;
    bool mamba = false;
    Counts device_slots;
    Counts host_slots;
    // The first device slots of each pool, which are never given out.
    Counts padding_slots;
    WritePolicy write_policy = WritePolicy::NONE;
    // Whether the caller moves data between the media and tells the cache, by `nodes.hpp`. The
    // cache has no engine then, and starts no copy.
    bool caller_copies = false;
    // Hits after which such a cache wants a backup; 0 for those of the write policy.
    int64_t wanted_hits = 0;
    EvictionPolicy eviction_policy = EvictionPolicy::LRU;
    int64_t load_back_threshold_pages = 0;
    bool events = true;
    // Events of single pages that may wait to be taken.
    int64_t max_pending_events = int64_t{1} << 20;
    // Whether there is a store below the host, and on which medium.
    bool has_store = false;
    Medium store_medium = DISK;
    // Bits of the hash that finds a page. Tests use fewer, so that pages collide.
    int tag_bits = 32;

    bool swa() const { return window_tokens != 0; }
    bool has(Component component) const {
        return component == FULL || (component == SWA ? swa() : mamba);
    }
    // Whether clients hold slots. A caller that copies itself has slots of its own, and those here
    // never leave the tree.
    bool lends_slots() const { return !caller_copies; }
    // Whether window slots are known by the full slots that they were allocated with.
    bool pairs_slots() const { return swa() && lends_slots(); }
    int64_t window_pages() const { return (window_tokens + page_size - 1) / page_size; }
    bool host_tier() const { return write_policy != WritePolicy::NONE; }
    bool writes_back() const { return write_policy == WritePolicy::WRITE_BACK; }
    // Whether a node on the host needs its parent on the host, too.
    bool backed_parents() const { return host_tier() && !writes_back(); }
    // Hits after which a node is backed up; 0 where hits do not trigger backups.
    int64_t backup_hits() const {
        if (wanted_hits != 0 && backed_parents()) return wanted_hits;
        return write_policy == WritePolicy::WRITE_THROUGH             ? 1
               : write_policy == WritePolicy::WRITE_THROUGH_SELECTIVE ? 2
                                                                      : 0;
    }
    int64_t padding(Component component, Medium medium) const {
        return medium == GPU && has(component) ? padding_slots[component] : 0;
    }
    int64_t capacity(Component component, Medium medium) const {
        if (!has(component)) return 0;
        return medium == GPU ? device_slots[component] : host_slots[component];
    }
};

}  // namespace kvcanon
