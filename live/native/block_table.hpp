// The blocks that a stream holds, by the key of their hash: what a router would keep, and no more.
//
// Blocks lie in chunks and never move; the index has four bytes for each of its places, of which
// between 35 % and 70 % are taken. So a block costs 72 bytes and 6 to 12 of the index, and the
// memory of blocks that left is used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sha256.hpp"
#include "tiers.hpp"

namespace kvcanon {

struct Block {
    uint64_t key;
    // Key of the block before it, where it has one.
    uint64_t parent;
    // The page hash that its tokens give, or where the chain before it is not known, a hash of its
    // tokens and its parent's key.
    uint8_t digest[HASH_BYTES];
    // Pages of the prompt up to its end, as far as the stream tells.
    uint32_t depth;
    uint32_t space;
    // Blocks that follow it, by the media on which children leave first.
    uint32_t children[CLOSABLE_MEDIA];
    // When it was last seen stored, counted in gaps.
    uint32_t epoch;
    // A bit for each tier.
    uint16_t tiers;
    uint16_t flags;
};

static_assert(sizeof(Block) == 80);

enum BlockFlag : uint16_t {
    HAS_PARENT = 1,
    // Its tokens are known.
    HAS_CONTENT = 2,
    // Its hash was seen to follow from its tokens, and so were those of all blocks before it.
    CHAINED = 4,
    // Its digest says all tokens before it; without this, its tokens and the key of its parent.
    ROOTED = 8,
    // Its namespace is not known: it says none, and the block before it was not there to say it.
    NAMELESS = 16,
    // Its parent counts it among its children: a bit for each medium, from this one on.
    COUNTED = 32,
};

class BlockTable {
  public:
    BlockTable() { clear(); }
    BlockTable(const BlockTable&) = delete;
    BlockTable& operator=(const BlockTable&) = delete;

    size_t size() const { return size_; }
    // Bytes of the blocks and their index.
    size_t bytes() const {
        return chunks_.size() * CHUNK * sizeof(Block) + index_.capacity() * sizeof(uint32_t);
    }
    // The block with this key; nullptr where there is none.
    Block* find(uint64_t key);
    // Add a block with a key that is not there; everything else of it is zero.
    Block& add(uint64_t key);
    void remove(uint64_t key);
    void clear();

    template <typename Visit>
    void each(Visit visit) const {
        for (const uint32_t place : index_) {
            if (place != NOBODY) visit(at(place));
        }
    }

  private:
    static constexpr uint32_t NOBODY = 0xffffffff;
    static constexpr size_t CHUNK = 512;
    static constexpr size_t FEWEST = 1024;

    Block& at(uint32_t place) const { return chunks_[place / CHUNK][place % CHUNK]; }
    size_t home(uint64_t key) const;
    // Where in the index the key is, or the empty place where it would be.
    size_t place_of(uint64_t key) const;
    void resize(size_t places);

    std::vector<std::unique_ptr<Block[]>> chunks_;
    std::vector<uint32_t> index_;
    // Blocks that were removed, linked by `key`.
    uint32_t unused_ = NOBODY;
    uint32_t made_ = 0;
    size_t size_ = 0;
};

}  // namespace kvcanon
