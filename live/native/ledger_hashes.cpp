// The hashes of a ledger: what tokens give, and whether a stream has the same.
#include <cstring>

#include "ledger.hpp"

namespace kvcanon {

namespace {

uint64_t first_eight(const uint8_t* bytes) {
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | bytes[i];
    return value;
}

// Whether the id on the wire is this digest: SGLang sends the first 64 bits as an integer, vLLM the
// last, others bytes.
bool is_named(const BlockId& id, const uint8_t* digest) {
    if (id.length == 0) {
        return id.key == first_eight(digest) || id.key == first_eight(digest + HASH_BYTES - 8);
    }
    return id.length <= HASH_BYTES && std::memcmp(id.bytes, digest, id.length) == 0;
}

}  // namespace

// Find the seed with which the hash of a first page agrees; the likeliest where none does.
size_t Ledger::find_root(const WireEvent& event, Chain& chain, Seed& seed) {
    const Space& space = spaces_.at(chain.space);
    const BlockId& id = batch_.ids[event.first_id];
    const uint32_t* words = batch_.words.data() + event.first_word;
    const auto page_words = static_cast<size_t>(event.block_size) * event.unit_words;
    const size_t tries = options_.hashes == Hashes::OPAQUE ? 0 : space.seeds.size() + 1;
    for (size_t i = 0; i < tries; ++i) {
        // The last try is a chain without a seed: right for the default namespace alone.
        const bool seeded = i < space.seeds.size();
        if (seeded) seed = space.seeds[i];
        const size_t seed_bytes = seeded ? HASH_BYTES : 0;
        hash_pages(seed.data(), seed_bytes, words, page_words, 1, digests_.data());
        if (!is_named(id, digests_.data())) continue;
        chain.chained = true;
        chain.unseeded = !seeded && !space.is_default();
        return seed_bytes;
    }
    if (space.seeds.empty()) return 0;
    seed = space.seeds[0];
    return HASH_BYTES;
}

// Compute the hashes that the tokens give.
Ledger::Chain Ledger::begin_chain(const WireEvent& event, const Block* before, uint32_t space) {
    Chain chain;
    chain.space = space;
    digests_.resize(event.ids * HASH_BYTES);
    Seed seed{};
    size_t seed_bytes = HASH_BYTES;
    if (!event.has_parent) {
        seed_bytes = find_root(event, chain, seed);
    } else if (before != nullptr && (before->flags & HAS_CONTENT) != 0) {
        chain.chained = (before->flags & CHAINED) != 0;
        std::memcpy(seed.data(), before->digest, HASH_BYTES);
    } else {
        std::memcpy(seed.data(), &event.parent.key, sizeof event.parent.key);
    }
    hash_pages(seed.data(), seed_bytes, batch_.words.data() + event.first_word,
               static_cast<size_t>(event.block_size) * event.unit_words, event.ids,
               digests_.data());
    const bool follow = chain.chained || spaces_.at(space).verified != 0;
    chain.judged =
        options_.hashes == Hashes::DEMANDED || (options_.hashes == Hashes::AUTO && follow);
    // Of a block whose parent is not known no hash can be computed.
    if (event.has_parent && !chain.chained) chain.judged = false;
    if (options_.hashes == Hashes::OPAQUE) chain.chained = chain.judged = false;
    return chain;
}

// Compare the hash of a page with its tokens; true where it is in a chain from the first page.
bool Ledger::check_hash(Book& book, const WireEvent& event, Chain& chain, uint32_t page) {
    if (options_.hashes == Hashes::OPAQUE) return false;
    const BlockId& id = batch_.ids[event.first_id + page];
    const uint8_t* digest = digests_.data() + size_t{page} * HASH_BYTES;
    if (is_named(id, digest)) {
        ++book.counts.verified;
        if (!chain.unseeded) ++spaces_.at(chain.space).verified;
        if (chain.unseeded && page == 0) {
            breach(Fault::UNSEEDED_HASH, event, page, medium_of(event), id.key, 0, 1);
        }
        chain.judged = true;
        return chain.chained = true;
    }
    if (chain.judged && (chain.chained || (page == 0 && !event.has_parent))) {
        breach(Fault::WRONG_HASH, event, page, medium_of(event), id.key, first_eight(digest),
               page + 1);
    } else {
        ++book.counts.unverified;
    }
    // One wrong hash makes all that follow look wrong.
    return chain.chained = false;
}

}  // namespace kvcanon
