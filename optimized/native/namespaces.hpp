// The namespaces of a cache, and how much of each is left.
//
// Clients choose namespaces (a salt is one), so their number must not grow with the requests that
// were ever served. A namespace is in use while token spans of it exist: nodes, and so locks and
// copies, have spans, and so do events, until nobody refers to them any more. A namespace that is
// not in use is *idle*. Idle ones are kept for a while, since a request asks for the number before
// it inserts anything; when a new one would make too many of them, the one whose number was not
// used for the longest time is forgotten.
//
// The number of a forgotten namespace is never given to another: a request with an old number is
// refused, and does not read the pages of another client.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sha256.hpp"

namespace kvcanon {

class Namespaces {
  public:
    // How many idle namespaces are kept.
    static constexpr size_t MOST_IDLE = 8192;

    struct Entry {
        // Empty where no namespace has this index.
        std::string encoded;
        uint8_t seed[HASH_BYTES] = {};
        // 0 for the default namespace.
        uint8_t seed_bytes = 0;
        // As `seed`, of the hashes by which storage names pages.
        uint8_t storage_seed[HASH_BYTES] = {};
        uint8_t storage_seed_bytes = 0;
        // How many namespaces had this index before.
        uint32_t generation = 0;
        uint32_t spans = 0;
        // Neighbours among the idle, the least recently used first; `next` among the unused, too.
        uint32_t previous = NOBODY, next = NOBODY;
    };

    // The index of a namespace; nothing where it is unknown.
    std::optional<uint32_t> find(const std::string& encoded) const;
    // The numbers that the next `add` forgets: none, one, or two where there are more idle than are
    // kept, because many became idle at once.
    std::vector<int64_t> next_forgotten() const;
    // Add a namespace that is unknown and return its index. The first is the default namespace, and
    // is never forgotten. If memory runs out, nothing is added and nothing forgotten.
    uint32_t add(const std::string& encoded, const uint8_t* seed, size_t seed_bytes);
    // Set what the storage hashes of a namespace begin with, before any is computed.
    void seed_storage(uint32_t index, const uint8_t* seed, size_t seed_bytes);
    // Forget all that are not in use.
    void forget_idle();

    const Entry& at(uint32_t index) const { return entries_[index]; }
    // What callers know a namespace by: its index, and its generation above that.
    int64_t number_of(uint32_t index) const {
        return static_cast<int64_t>(entries_[index].generation) << 32 | index;
    }
    // The index of a number; nothing for one that was never given, or whose namespace was
    // forgotten.
    std::optional<uint32_t> index_of(int64_t number) const;
    // A request uses this namespace.
    void use(uint32_t index) {
        if (entries_[index].spans != 0 || index == 0) return;
        leave(index);
        join(index);
    }

    // A span of the namespace was made, or deleted.
    void hold(uint32_t index) {
        assert(index == 0 || !entries_[index].encoded.empty());
        if (entries_[index].spans++ == 0 && index != 0) leave(index);
    }
    void release(uint32_t index) {
        assert(entries_[index].spans > 0);
        if (--entries_[index].spans == 0 && index != 0) join(index);
    }

    // How many there are, and how many of them are idle.
    size_t size() const { return ids_.size(); }
    size_t idle() const { return idle_; }

  private:
    static constexpr uint32_t NOBODY = 0xffffffff;
    // Add to the idle, or remove from them.
    void join(uint32_t index);
    void leave(uint32_t index);
    void forget(uint32_t index);

    // A deque and a tree: there may be very many, and no call should pay for all of them.
    std::deque<Entry> entries_;
    std::map<std::string, uint32_t> ids_;
    // The first index that no namespace has; each leads to the next one.
    uint32_t unused_ = NOBODY;
    // The generation that an index begins with.
    uint32_t first_generation_ = 0;
    uint32_t first_ = NOBODY, last_ = NOBODY;
    size_t idle_ = 0;
};

}  // namespace kvcanon
