// A book: what one rank holds of one group of layers, by its events.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "announced_pages.hpp"
#include "block_table.hpp"
#include "tiers.hpp"
#include "wire_batch.hpp"

namespace kvcanon {

struct BookCounts {
    // By tier.
    std::array<uint64_t, MOST_TIERS> blocks{}, stored{}, removed{};
    uint64_t cleared = 0;
    // Stores of blocks that were nowhere, and those among them that had left not long before.
    uint64_t fresh = 0, came_back = 0;
    // Stores of blocks that were there, where that is no breach.
    uint64_t repeated = 0;
    uint64_t verified = 0, unverified = 0;
    // What could have been a breach, had the whole stream been seen.
    uint64_t unjudged = 0;
};

// Marks of keys, each in a place that the key gives: a later one can take the place of one before.
class KeyMarks {
  public:
    void note(uint64_t key);
    bool has(uint64_t key) const;
    size_t bytes() const { return marks_.capacity() * sizeof(uint32_t); }

  private:
    // There are few places until so many keys were noted: most books of a hostile stream stay
    // small.
    static constexpr size_t FEW = size_t{1} << 12, MANY = size_t{1} << 20;
    static uint32_t mark_of(uint64_t key) { return static_cast<uint32_t>(key >> 32) | 1; }

    std::vector<uint32_t> marks_;
    size_t noted_ = 0;
};

class Book {
  public:
    BlockTable table;
    BookCounts counts;
    AnnouncedPages announced;
    // Units of a block; 0 before the first store.
    int64_t block_size = 0;
    // What the layers keep, and the tokens of their window, as far as events said it.
    GroupKind kind = GroupKind::UNSAID;
    int64_t window = 0;
    // Blocks that left, and blocks that were stored where they were.
    KeyMarks departed, reported;

    // Whether a block needs the blocks before it. A window's blocks leave before those that follow,
    // and of states only some positions are kept.
    bool needs_parents() const { return kind == GroupKind::UNSAID || kind == GroupKind::FULL; }

    // The tiers of a prompt's leading pages, a bit for each, up to the first that is nowhere.
    // `seed` is that of its namespace.
    std::vector<uint16_t> tiers_of(Origin seed, const std::vector<uint32_t>& tokens);

    // Count one more copy of a block on a tier; how many there are beside the first.
    uint32_t add_copy(uint64_t key, int tier) { return ++copies_[static_cast<size_t>(tier)][key]; }
    // Take one of these copies off; false where there is the first alone.
    bool take_copy(uint64_t key, int tier);
    void forget_copies();
    size_t bytes() const;

  private:
    // By tier, how many copies of a block there are beside the first.
    std::array<std::unordered_map<uint64_t, uint32_t>, MOST_TIERS> copies_;
};

}  // namespace kvcanon
