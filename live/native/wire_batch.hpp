// A batch of events as publishers send it, decoded in one pass.
//
// Decoding comes before folding, so that a batch that is malformed anywhere changes nothing. Three
// forms of an event are read: maps with the key `type` (SGLang since 0.5.20, vLLM), and arrays that
// begin with the type (both before). Unknown fields and unknown types of events are skipped.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace kvcanon {

// The hash of a block: an integer, or bytes, which are known by the first eight of them.
struct BlockId {
    uint64_t key = 0;
    // Of a hash in bytes; nullptr for an integer.
    const uint8_t* bytes = nullptr;
    uint32_t length = 0;
};

struct Text {
    bool is_there = false;
    std::string_view value;
};

enum class WireKind : uint8_t { STORED, REMOVED, CLEARED };

struct WireEvent {
    WireKind kind = WireKind::CLEARED;
    // Where its hashes are in the batch, and how many.
    uint32_t first_id = 0, ids = 0;
    bool has_parent = false;
    BlockId parent;
    // Where its tokens are in the batch; a unit is a token, or a pair of them.
    size_t first_word = 0;
    uint32_t units = 0;
    uint32_t unit_words = 1;
    int64_t block_size = 0;
    // vLLM's groups of layers; 0 where none is named.
    int64_t group = 0;
    Text medium, salt, lora, extra_key;
    // The bytes of the extra keys of the first block.
    std::string_view extra;
    // Where it was in the batch, unknown events counted.
    uint32_t index = 0;
};

struct WireBatch {
    double timestamp = 0;
    int64_t rank = 0;
    std::vector<WireEvent> events;
    std::vector<BlockId> ids;
    std::vector<uint32_t> words;
    // Events of types that are not known.
    uint32_t unknown = 0;

    // Decode a payload into this batch, whose memory is reused. The payload must outlive it.
    // Throws Malformed.
    void decode(const uint8_t* payload, size_t size);
};

}  // namespace kvcanon
