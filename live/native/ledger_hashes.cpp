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

bool ends_with(std::string_view text, std::string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

// Find the seed with which the hash of a first page agrees, the likeliest where none does; how many
// bytes of it begin the chain.
size_t Ledger::find_root(const WireEvent& event, Chain& chain) {
    const Space& space = spaces_.at(chain.space);
    const BlockId& id = batch_.ids[event.first_id];
    const uint32_t* words = batch_.words.data() + event.first_word;
    const auto page_words = static_cast<size_t>(event.block_size) * event.unit_words;
    const size_t tries = options_.hashes == Hashes::OPAQUE ? 0 : space.seeds.size() + 1;
    for (size_t i = 0; i < tries; ++i) {
        // The last try is a chain without a seed: right for the default namespace alone.
        const bool seeded = i < space.seeds.size();
        if (seeded) chain.seed = space.seeds[i];
        const size_t seed_bytes = seeded ? HASH_BYTES : 0;
        hash_pages(chain.seed.data(), seed_bytes, words, page_words, 1, digests_.data());
        if (!is_named(id, digests_.data())) continue;
        chain.chained = true;
        chain.unseeded = !seeded && !space.is_default();
        return seed_bytes;
    }
    if (space.seeds.empty()) return 0;
    chain.seed = space.seeds[0];
    return HASH_BYTES;
}

// Compute the hashes that the tokens give, or leave them to `hash_page`.
Ledger::Chain Ledger::begin_chain(const WireEvent& event, const Block* before, uint32_t space) {
    Chain chain;
    chain.space = space;
    digests_.resize(event.ids * HASH_BYTES);
    chain.rooted = !event.has_parent || (before != nullptr && (before->flags & ROOTED) != 0);
    const bool nameless = before == nullptr || (before->flags & NAMELESS) != 0;
    chain.nameless = event.has_parent && nameless && space == 0;
    chain.seed_bytes = HASH_BYTES;
    if (!event.has_parent) {
        chain.seed_bytes = find_root(event, chain);
    } else if (chain.rooted) {
        chain.chained = (before->flags & CHAINED) != 0;
        std::memcpy(chain.seed.data(), before->digest, HASH_BYTES);
    }
    chain.paged = !chain.rooted || event.extras != 0;
    if (!chain.paged) {
        hash_pages(chain.seed.data(), chain.seed_bytes, batch_.words.data() + event.first_word,
                   static_cast<size_t>(event.block_size) * event.unit_words, event.ids,
                   digests_.data());
    }
    const bool follow = chain.chained || spaces_.at(space).verified != 0;
    chain.judged =
        options_.hashes == Hashes::DEMANDED || (options_.hashes == Hashes::AUTO && follow);
    // Of a block whose parent is not known no hash can be computed.
    if (event.has_parent && !chain.chained) chain.judged = false;
    if (options_.hashes == Hashes::OPAQUE) chain.chained = chain.judged = false;
    return chain;
}

// Compute the digest of one page, after those of the pages before it. Where not all tokens before
// are known, it follows the key of the block before: so it is the same whenever it is stored.
void Ledger::hash_page(const WireEvent& event, const Chain& chain, uint32_t page) {
    Seed seed = chain.seed;
    size_t seed_bytes = chain.seed_bytes;
    if (!chain.rooted) {
        const BlockId& before = page == 0 ? event.parent : batch_.ids[event.first_id + page - 1];
        seed = {};
        std::memcpy(seed.data(), &before.key, sizeof before.key);
    } else if (page != 0) {
        const uint8_t* before = digests_.data() + size_t{page - 1} * HASH_BYTES;
        std::memcpy(seed.data(), before, HASH_BYTES);
        seed_bytes = HASH_BYTES;
    }
    const auto page_words = static_cast<size_t>(event.block_size) * event.unit_words;
    hash_pages(seed.data(), seed_bytes, batch_.words.data() + event.first_word + page * page_words,
               page_words, 1, digests_.data() + size_t{page} * HASH_BYTES);
}

// Make the extra keys of a page part of its digest, unless they are names of its namespace.
void Ledger::mix_extra(const WireEvent& event, uint32_t page) {
    const std::string_view extra = batch_.extra_of(event, page);
    if (extra.empty()) return;
    const size_t names = names_among(extra);
    const bool is_first = page == 0 && !event.has_parent;
    const bool is_lora = names == 1 && event.lora.is_there && ends_with(extra, event.lora.value);
    if ((is_first && names != 0) || is_lora) return;
    std::vector<uint32_t> words(1 + (extra.size() + 3) / 4);
    words[0] = static_cast<uint32_t>(extra.size());
    std::memcpy(words.data() + 1, extra.data(), extra.size());
    uint8_t* digest = digests_.data() + size_t{page} * HASH_BYTES;
    Seed seed{};
    std::memcpy(seed.data(), digest, HASH_BYTES);
    hash_pages(seed.data(), HASH_BYTES, words.data(), words.size(), 1, digest);
}

// Compare the hash of a page with its tokens; true where it is in a chain from the first page.
bool Ledger::check_hash(const Place& place, Chain& chain, uint32_t page) {
    if (options_.hashes == Hashes::OPAQUE) return false;
    const auto& [rank, book, event, tier] = place;
    const BlockId& id = batch_.ids[event.first_id + page];
    const uint8_t* digest = digests_.data() + size_t{page} * HASH_BYTES;
    if (is_named(id, digest)) {
        ++book.counts.verified;
        if (!chain.unseeded) ++spaces_.at(chain.space).verified;
        if (chain.unseeded && page == 0) {
            breach(Fault::UNSEEDED_HASH, event, page, tier, id.key, 0, 1);
        }
        chain.judged = true;
        return chain.chained = true;
    }
    if (chain.judged && (chain.chained || (page == 0 && !event.has_parent))) {
        breach(Fault::WRONG_HASH, event, page, tier, id.key, first_eight(digest), page + 1);
    } else {
        ++book.counts.unverified;
    }
    // One wrong hash makes all that follow look wrong.
    return chain.chained = false;
}

}  // namespace kvcanon
