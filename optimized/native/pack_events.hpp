// Events packed for the wire: taken at once, encoded later by another thread.
//
// Taking copies the tokens and hashes of the events into a few arrays, so that nothing of the cache
// is touched when they are encoded. No event becomes an object of Python.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "state.hpp"

namespace kvcanon {

// In the order of `DIALECTS` in kvcanon.live.dialects.
enum class Dialect : int {
    // Maps, as SGLang's; hashes are the first 64 bits, signed.
    SGLANG,
    // Maps, as vLLM's; hashes are the last 64 bits.
    VLLM,
    // Arrays, as both sent before; hashes as SGLang's.
    LEGACY,
};

struct PackedEvents {
    struct Item {
        EventKind kind;
        Medium medium;
        // Index into `namespaces`.
        uint32_t space = 0;
        uint32_t pages = 0;
        bool has_parent = false;
        // Where its hashes are: the parent's, if any, and then those of the pages.
        size_t first_hash = 0;
        size_t first_word = 0;
    };

    std::vector<Item> items;
    std::vector<uint8_t> hashes;
    std::vector<uint32_t> words;
    // As `kvcanon.spec.hashing.encode_namespace` encodes them; the first is the default one.
    std::vector<std::string> namespaces{std::string()};
    uint32_t page_size = 1;
    uint32_t unit_words = 1;
    uint64_t pages = 0;

    // The batch of events as MessagePack. Touches nothing but this object.
    std::string encode(Dialect dialect, double timestamp, int64_t rank) const;
};

// The events that wait, packed; they are not forgotten yet.
PackedEvents pack_events(State& state);

}  // namespace kvcanon
