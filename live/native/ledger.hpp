// What a stream of events says is cached, folded as a router folds it, and where the stream breaks
// a law that it can show by itself.
//
// There is one book for each rank and each group of layers. A stream that is joined late, or that
// has a gap, does not show everything: what could be explained by events that were not seen is
// counted as not judged, and is no breach.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "block_table.hpp"
#include "book.hpp"
#include "spaces.hpp"
#include "tiers.hpp"
#include "wire_batch.hpp"

namespace kvcanon {

// In the order of `kvcanon.live.stream_faults.Fault`.
enum class Fault : int {
    PARENT_ABSENT,
    STORED_TWICE,
    REMOVED_ABSENT,
    WRONG_HASH,
    UNSEEDED_HASH,
    OTHER_CONTENT,
    OTHER_NAMESPACE,
    MISALIGNED,
    NO_TOKENS,
    OTHER_BLOCK_SIZE,
    CHILD_STAYS,
    NOT_CLEARED_FIRST,
    UNKNOWN_MEDIUM,
    GROUP_UNSAID,
};

// One way in which a batch breaks a law.
struct Breach {
    Fault fault;
    // The event in its batch, and the block in the event.
    uint32_t event, page;
    // The group of layers, and the tier.
    int64_t group;
    int tier;
    uint64_t key;
    // Another block or number that the breach is about, by the fault.
    uint64_t other;
    // Pages of the prompt up to the block, as far as they are known.
    uint32_t depth;
};

// How hashes are judged.
enum class Hashes : int {
    // Where the hashes of a namespace are seen to follow from tokens, all must.
    AUTO,
    // All must follow from tokens.
    DEMANDED,
    // They are names and nothing else.
    OPAQUE,
};

// What the store of a block means that is already where it is stored.
enum class Repeats : int {
    // Copies are counted where events name kinds of groups or tiers, as vLLM's do, whose contract
    // it
    // is; once one block has more copies than can be, they are reports. Otherwise a breach.
    AUTO,
    // A breach.
    ONCE,
    // One more copy, which needs a remove of its own.
    COUNTED,
    // The block is reported again, as to a router that joined late; one remove takes it off.
    REPORTED,
};

struct LedgerOptions {
    Hashes hashes = Hashes::AUTO;
    Repeats repeats = Repeats::AUTO;
    // Media, by their bits, on which a block needs the block before it, beside the device.
    uint32_t closed = 0;
    // Whether to keep a trace of what happened to which page, for comparisons.
    bool tracing = false;
    // Whether to remember the pages that were announced, so that prompts can be looked up.
    bool finding_prompts = false;
};

// What a trace says of a page.
enum class Trace : char { STORED, REMOVED, CLEARED };

struct Rank {
    std::map<int64_t, Book> books;
    // Whether all events since the last clear were seen.
    bool complete = false;
    bool has_gap = false;
    uint32_t epoch = 0;
    // Whether events name kinds of groups or tiers, as vLLM's do.
    bool says_kinds = false;
    // Whether blocks are reported again, so that their copies cannot be counted.
    bool reports = false;
};

class Ledger {
  public:
    Ledger(LedgerOptions options, FindSeeds find_seeds);
    Ledger(const Ledger&) = delete;
    Ledger& operator=(const Ledger&) = delete;

    // Fold a batch, and return the laws that it breaks. `begins`: it is the first of a publisher,
    // whatever came before. Throws Malformed, and then nothing has changed.
    std::vector<Breach> fold(const uint8_t* payload, size_t size, bool begins);
    // Events were lost.
    void lose();
    // Another publisher took the place of this one, and its first events were not seen.
    void drop();

    const WireBatch& batch() const { return batch_; }
    const Tiers& tiers() const { return tiers_; }
    // What happened since the last call: 34 bytes each, a `Trace`, the tier and the digest.
    std::string take_trace() { return std::exchange(trace_, std::string()); }
    std::map<int64_t, Rank>& ranks() { return ranks_; }
    Spaces& spaces() { return spaces_; }

  private:
    // The hashes that the tokens of one event give.
    struct Chain {
        // Whether the block before is in a chain from the first page.
        bool chained = false;
        // Whether all tokens before are known.
        bool rooted = false;
        // Whether digests are computed page by page: their extra keys, or the keys of unknown
        // blocks, are part of what follows.
        bool paged = false;
        // Whether a hash that differs is a breach.
        bool judged = false;
        // Whether the chain begins as if there were no namespace.
        bool unseeded = false;
        // Whether the namespace is not known.
        bool nameless = false;
        uint32_t space = 0;
        Seed seed{};
        size_t seed_bytes = 0;
    };

    // A store or a remove that is folded: where it belongs.
    struct Place {
        Rank& rank;
        Book& book;
        const WireEvent& event;
        int tier;
    };

    void require_few_books() const;
    static void learn(Rank& rank, Book& book, const WireEvent& event);
    void store(const Place& place);
    void remove(Rank& rank, const WireEvent& event);
    void clear(Rank& rank);
    bool is_aligned(const Place& place);
    static bool is_part(const Place& place);
    size_t find_root(const WireEvent& event, Chain& chain);
    Chain begin_chain(const WireEvent& event, const Block* before, uint32_t space);
    void hash_page(const WireEvent& event, const Chain& chain, uint32_t page);
    void mix_extra(const WireEvent& event, uint32_t page);
    bool check_hash(const Place& place, Chain& chain, uint32_t page);
    void check_parent(const Place& place, const Block* before);
    Block& put(const Place& place, uint32_t page, const Block& wanted);
    void compare(const Place& place, uint32_t page, Block& block, const Block& wanted);
    void repeat(const Place& place, uint32_t page, const Block& block);
    uint32_t space_of(const Place& place, const Block* before, uint32_t stated);
    void describe(const Place& place, uint32_t page, const Block* before, Chain& chain,
                  Block& wanted);
    Book& book_of(Rank& rank, WireEvent& event, uint32_t page, int tier);
    int tier_of(const WireEvent& event, const Block* block, int tier) const;
    bool take_off(const Place& place, uint32_t page);
    void check_children(const Place& place, uint32_t page, const Block& block);
    void count_child(const Place& place, Block& block, Block* before);
    void note_announced(Book& book, const WireEvent& event, const Space& space);
    void note(Trace what, int tier, const uint8_t* digest);
    Repeats repeats_of(const Rank& rank) const;
    bool is_closed(const Place& place) const;
    int child_slot(const Place& place) const;
    int named_tier(const WireEvent& event);
    void breach(Fault fault, const WireEvent& event, uint32_t page, int tier, uint64_t key,
                uint64_t other, uint32_t depth);

    LedgerOptions options_;
    Spaces spaces_;
    Tiers tiers_;
    std::map<int64_t, Rank> ranks_;
    WireBatch batch_;
    std::vector<Breach> breaches_;
    std::vector<uint8_t> digests_;
    std::string trace_;
    bool saw_all_ = false;
};

}  // namespace kvcanon
