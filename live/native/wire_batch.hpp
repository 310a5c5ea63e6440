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

// What the layers of a group keep, in the order of `kvcanon.live.dialects.GroupKind`.
enum class GroupKind : uint8_t {
    // The stream does not say; judged as full attention.
    UNSAID,
    FULL,
    // A sliding window, or chunks of local attention.
    WINDOW,
    // Recurrent states.
    STATES,
    // A kind that is not known here.
    OTHER,
};

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
    bool has_group = false;
    GroupKind group_kind = GroupKind::UNSAID;
    // Tokens of a sliding window; 0 where none is named.
    int64_t window = 0;
    Text medium, salt, lora, extra_key;
    // Where a tier is to the publisher, and who keeps it.
    Text locality, ownership;
    // Where the extra keys of its blocks are in the batch, and of how many blocks there are any.
    size_t first_extra = 0;
    uint32_t extras = 0;
    // Where it was in the batch, unknown events counted.
    uint32_t index = 0;
};

struct WireBatch {
    double timestamp = 0;
    int64_t rank = 0;
    std::vector<WireEvent> events;
    std::vector<BlockId> ids;
    std::vector<uint32_t> words;
    // The bytes of the extra keys of blocks; empty for a block without.
    std::vector<std::string_view> extras;
    // Events of types that are not known.
    uint32_t unknown = 0;

    // Decode a payload into this batch, whose memory is reused. The payload must outlive it.
    // Throws Malformed.
    void decode(const uint8_t* payload, size_t size);

    // The extra keys of a block of an event, as MessagePack; empty where it has none.
    std::string_view extra_of(const WireEvent& event, uint32_t page) const {
        return page < event.extras ? extras[event.first_extra + page] : std::string_view();
    }
};

// How many texts the extra keys of a block are; 0 where anything else is among them, as the
// identifier and place of an image.
size_t names_among(std::string_view extra);

}  // namespace kvcanon
