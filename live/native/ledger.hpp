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

#include "announced_pages.hpp"
#include "block_table.hpp"
#include "spaces.hpp"
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
};

// One way in which a batch breaks a law.
struct Breach {
    Fault fault;
    // The event in its batch, and the block in the event.
    uint32_t event, page;
    int medium;
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

struct LedgerOptions {
    Hashes hashes = Hashes::AUTO;
    // Whether on the host, too, a block needs the block before it.
    bool host_is_closed = false;
    // Whether to keep a trace of what happened to which page, for comparisons.
    bool tracing = false;
    // Whether to remember the pages that were announced, so that prompts can be looked up.
    bool finding_prompts = false;
};

// GPU, host, disk, external, and media whose names are not known.
constexpr size_t WIRE_MEDIA = 5;
constexpr int GPU_MEDIUM = 0, HOST_MEDIUM = 1, DISK_MEDIUM = 2, EXTERNAL_MEDIUM = 3,
              OTHER_MEDIUM = 4;

// What a trace says of a page.
enum class Trace : char { STORED, REMOVED, CLEARED };

struct BookCounts {
    std::array<uint64_t, WIRE_MEDIA> blocks{}, stored{}, removed{};
    uint64_t cleared = 0;
    // Stores of blocks that were nowhere, and those among them that had left not long before.
    uint64_t fresh = 0, came_back = 0;
    uint64_t verified = 0, unverified = 0;
    // What could have been a breach, had the whole stream been seen.
    uint64_t unjudged = 0;
};

class Book {
  public:
    BlockTable table;
    BookCounts counts;
    AnnouncedPages announced;
    // Units of a block; 0 before the first store.
    int64_t block_size = 0;

    // The media of a prompt's leading pages, a bit for each, up to the first that is nowhere.
    // `seed` is that of its namespace.
    std::vector<uint8_t> media_of(Origin seed, const std::vector<uint32_t>& tokens);

    // The block left: if it is stored again soon, it came back.
    void note_departure(uint64_t key);
    bool departed(uint64_t key) const;
    size_t bytes() const { return table.bytes() + departed_.capacity() * sizeof(uint32_t); }

  private:
    // Marks of blocks that left, each in a place that its key gives.
    static constexpr size_t DEPARTED = size_t{1} << 20;
    std::vector<uint32_t> departed_;
};

struct Rank {
    std::map<int64_t, Book> books;
    // Whether all events since the last clear were seen.
    bool complete = false;
    bool has_gap = false;
    uint16_t epoch = 0;
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
    // What happened since the last call: 34 bytes each, a `Trace`, the medium and the digest.
    std::string take_trace() { return std::exchange(trace_, std::string()); }
    std::map<int64_t, Rank>& ranks() { return ranks_; }
    Spaces& spaces() { return spaces_; }

  private:
    // The hashes that the tokens of one event give.
    struct Chain {
        // Whether the block before is in a chain from the first page.
        bool chained = false;
        // Whether a hash that differs is a breach.
        bool judged = false;
        // Whether the chain begins as if there were no namespace.
        bool unseeded = false;
        uint32_t space = 0;
    };

    void store(Rank& rank, Book& book, const WireEvent& event);
    void remove(Rank& rank, Book& book, const WireEvent& event);
    void clear(Rank& rank);
    bool is_aligned(Book& book, const WireEvent& event, int medium);
    size_t find_root(const WireEvent& event, Chain& chain, Seed& seed);
    Chain begin_chain(const WireEvent& event, const Block* before, uint32_t space);
    bool check_hash(Book& book, const WireEvent& event, Chain& chain, uint32_t page);
    void check_parent(Rank& rank, Book& book, const WireEvent& event, const Block* before,
                      int medium);
    Block& put(Rank& rank, Book& book, const WireEvent& event, uint32_t page, int medium,
               const Block& wanted);
    uint32_t space_of(const WireEvent& event, const Block* before, uint32_t stated, int medium);
    void describe(Book& book, const WireEvent& event, uint32_t page, const Block* before,
                  Chain& chain, Block& wanted);
    bool take_off(Rank& rank, Book& book, const WireEvent& event, uint32_t page, int medium);
    void check_children(Rank& rank, Book& book, const WireEvent& event, uint32_t page, int medium,
                        const Block& block);
    void count_child(Block& block, Block* before, int medium);
    void note_announced(Book& book, const WireEvent& event, const Space& space);
    void note(Trace what, int medium, const uint8_t* digest);
    int closed_index(int medium) const;
    int medium_of(const WireEvent& event);
    void breach(Fault fault, const WireEvent& event, uint32_t page, int medium, uint64_t key,
                uint64_t other, uint32_t depth);

    LedgerOptions options_;
    Spaces spaces_;
    std::map<int64_t, Rank> ranks_;
    WireBatch batch_;
    std::vector<Breach> breaches_;
    std::vector<uint8_t> digests_;
    std::vector<uint32_t> gone_;
    std::string trace_;
    bool saw_all_ = false;
};

}  // namespace kvcanon
