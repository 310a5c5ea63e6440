#include "ledger.hpp"

#include <cstring>
#include <utility>

#include "msgpack_reader.hpp"

namespace kvcanon {

namespace {

// Breaches of one batch beyond these are counted by their first.
constexpr size_t MOST_BREACHES = 1024;

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

bool same(const Text& one, const Text& other) {
    return one.is_there == other.is_there && one.value == other.value;
}

}  // namespace

// The hashes that the tokens of one event give.
struct Ledger::Chain {
    // Whether the block before is in a chain from the first page.
    bool chained = false;
    // Whether a hash that differs is a breach.
    bool judged = false;
    // Whether the chain begins as if there were no namespace.
    bool unseeded = false;
    uint32_t space = 0;
};

void Book::note_departure(uint64_t key) {
    if (departed_.empty()) departed_.resize(DEPARTED);
    departed_[key & (DEPARTED - 1)] = static_cast<uint32_t>(key >> 32) | 1;
}

bool Book::departed(uint64_t key) const {
    return !departed_.empty() &&
           departed_[key & (DEPARTED - 1)] == (static_cast<uint32_t>(key >> 32) | 1);
}

Ledger::Ledger(LedgerOptions options, FindSeeds find_seeds)
    : options_(options), spaces_(std::move(find_seeds)) {}

std::vector<Breach> Ledger::fold(const uint8_t* payload, size_t size, bool begins) {
    batch_.decode(payload, size);
    breaches_.clear();
    if (begins) {
        drop();
        saw_all_ = true;
    }
    auto found = ranks_.find(batch_.rank);
    if (found == ranks_.end()) {
        found = ranks_.try_emplace(batch_.rank).first;
        found->second.complete = saw_all_;
        found->second.has_gap = !saw_all_;
    }
    Rank& rank = found->second;
    if (begins && (batch_.events.empty() || batch_.events[0].kind != WireKind::CLEARED)) {
        breach(Fault::NOT_CLEARED_FIRST, WireEvent(), 0, GPU_MEDIUM, 0, 0, 0);
    }
    for (const WireEvent& event : batch_.events) {
        if (event.kind == WireKind::CLEARED) {
            clear(rank);
            ++rank.books[0].counts.cleared;
            note(2, 0, Seed{}.data());
        } else if (event.kind == WireKind::STORED) {
            store(rank, rank.books[event.group], event);
        } else {
            remove(rank, rank.books[event.group], event);
        }
    }
    return std::move(breaches_);
}

void Ledger::note(int kind, int medium, const uint8_t* digest) {
    if (!options_.tracing) return;
    trace_.push_back(static_cast<char>(kind));
    trace_.push_back(static_cast<char>(medium));
    trace_.append(reinterpret_cast<const char*>(digest), HASH_BYTES);
}

void Ledger::lose() {
    saw_all_ = false;
    for (auto& [number, rank] : ranks_) {
        rank.complete = false;
        rank.has_gap = true;
        if (rank.epoch != UINT16_MAX) ++rank.epoch;
    }
}

void Ledger::drop() {
    for (auto& [number, rank] : ranks_) clear(rank);
    ranks_.clear();
    saw_all_ = false;
}

void Ledger::clear(Rank& rank) {
    for (auto& [group, book] : rank.books) {
        book.table.each([&](const Block& block) { spaces_.release(block.space); });
        book.table.clear();
        book.counts.blocks = {};
        book.block_size = 0;
    }
    rank.complete = true;
    rank.has_gap = false;
    rank.epoch = 0;
}

int Ledger::medium_of(const WireEvent& event) {
    const std::string_view name = event.medium.value;
    // The oldest forms have no medium, and know of the device alone.
    if (!event.medium.is_there || name == "GPU") return GPU_MEDIUM;
    if (name == "CPU_PINNED" || name == "CPU") return HOST_MEDIUM;
    if (name == "DISK" || name == "STORAGE") return 2;
    if (name == "EXTERNAL") return 3;
    breach(Fault::UNKNOWN_MEDIUM, event, 0, OTHER_MEDIUM, 0, 0, 0);
    return OTHER_MEDIUM;
}

int Ledger::closed_index(int medium) const {
    if (medium == GPU_MEDIUM) return 0;
    return medium == HOST_MEDIUM && options_.host_is_closed ? 1 : -1;
}

void Ledger::breach(Fault fault, const WireEvent& event, uint32_t page, int medium, uint64_t key,
                    uint64_t other, uint32_t depth) {
    if (breaches_.size() == MOST_BREACHES) return;
    breaches_.push_back({fault, event.index, page, medium, key, other, depth});
}

bool Ledger::is_aligned(Book& book, const WireEvent& event, int medium) {
    const uint64_t key = event.ids == 0 ? 0 : batch_.ids[event.first_id].key;
    if (event.units == 0 && event.ids != 0) {
        breach(Fault::NO_TOKENS, event, 0, medium, key, event.ids, 0);
        return false;
    }
    if (event.block_size <= 0 || event.block_size > INT32_MAX ||
        static_cast<uint64_t>(event.block_size) * event.ids != event.units) {
        breach(Fault::MISALIGNED, event, 0, medium, key, event.units, 0);
        return false;
    }
    if (book.block_size == 0) book.block_size = event.block_size;
    if (book.block_size != event.block_size) {
        breach(Fault::OTHER_BLOCK_SIZE, event, 0, medium, key,
               static_cast<uint64_t>(book.block_size), 0);
    }
    return true;
}

void Ledger::check_parent(Rank& rank, Book& book, const WireEvent& event, const Block* before,
                          int medium) {
    const bool closed = closed_index(medium) >= 0;
    const bool there = before != nullptr && (!closed || (before->media >> medium & 1) != 0);
    if (there) return;
    if (!rank.complete) {
        ++book.counts.unjudged;
        return;
    }
    const uint32_t depth = before == nullptr ? 0 : before->depth + 1;
    breach(Fault::PARENT_ABSENT, event, 0, medium, batch_.ids[event.first_id].key, event.parent.key,
           depth);
}

// Find the hashes that the tokens give, by the seed with which the first of them agrees.
Ledger::Chain Ledger::begin_chain(const WireEvent& event, const Block* before,
                                  uint32_t space_number) {
    Chain chain;
    chain.space = space_number;
    Space& space = spaces_.at(space_number);
    const uint32_t* words = batch_.words.data() + event.first_word;
    const auto page_words = static_cast<size_t>(event.block_size) * event.unit_words;
    digests_.resize(event.ids * HASH_BYTES);
    Seed seed{};
    size_t seed_bytes = HASH_BYTES;
    if (event.has_parent) {
        const bool known = before != nullptr && (before->flags & HAS_CONTENT) != 0;
        chain.chained = known && (before->flags & CHAINED) != 0;
        if (known) {
            std::memcpy(seed.data(), before->digest, HASH_BYTES);
        } else {
            std::memcpy(seed.data(), &event.parent.key, sizeof event.parent.key);
        }
    } else {
        const BlockId& id = batch_.ids[event.first_id];
        // The last try is a chain without a seed: right for the default namespace alone.
        for (size_t i = 0; i <= space.seeds.size() && !chain.chained; ++i) {
            const bool seeded = i < space.seeds.size();
            if (seeded) seed = space.seeds[i];
            seed_bytes = seeded ? HASH_BYTES : 0;
            hash_pages(seed.data(), seed_bytes, words, page_words, 1, digests_.data());
            chain.chained = options_.hashes != Hashes::OPAQUE && is_named(id, digests_.data());
            chain.unseeded = chain.chained && !seeded && !space.is_default();
        }
        if (!chain.chained && !space.seeds.empty()) {
            seed = space.seeds[0];
            seed_bytes = HASH_BYTES;
        }
    }
    hash_pages(seed.data(), seed_bytes, words, page_words, event.ids, digests_.data());
    chain.judged = options_.hashes == Hashes::DEMANDED ||
                   (options_.hashes == Hashes::AUTO && (space.verified != 0 || chain.chained));
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

Block& Ledger::put(Rank& rank, Book& book, const WireEvent& event, uint32_t page, int medium,
                   const Block& wanted) {
    constexpr uint8_t CONTENT = HAS_PARENT | HAS_CONTENT | CHAINED;
    const auto bit = static_cast<uint8_t>(1U << medium);
    BookCounts& counts = book.counts;
    ++counts.stored[static_cast<size_t>(medium)];
    Block* block = book.table.find(wanted.key);
    if (block == nullptr) {
        block = &book.table.add(wanted.key);
        ++counts.fresh;
        if (book.departed(wanted.key)) ++counts.came_back;
        *block = wanted;
        spaces_.hold(block->space);
    } else if ((block->flags & wanted.flags & HAS_CONTENT) != 0) {
        const bool same_kind = (block->flags & CHAINED) == (wanted.flags & CHAINED);
        const bool other = std::memcmp(block->digest, wanted.digest, HASH_BYTES) != 0;
        if (block->space != wanted.space) {
            breach(Fault::OTHER_NAMESPACE, event, page, medium, block->key, block->parent,
                   block->depth);
        } else if (same_kind && other) {
            breach(Fault::OTHER_CONTENT, event, page, medium, block->key, block->parent,
                   block->depth);
        }
    } else if ((wanted.flags & HAS_CONTENT) != 0) {
        std::memcpy(block->digest, wanted.digest, HASH_BYTES);
        block->parent = wanted.parent;
        block->depth = wanted.depth;
        block->flags = static_cast<uint8_t>((block->flags & ~CONTENT) | wanted.flags);
    }
    if ((block->media & bit) == 0) {
        block->media |= bit;
        ++counts.blocks[static_cast<size_t>(medium)];
    } else if (block->epoch != rank.epoch) {
        ++counts.unjudged;  // Its remove may have been lost.
    } else {
        breach(Fault::STORED_TWICE, event, page, medium, block->key, 0, block->depth);
    }
    block->epoch = rank.epoch;
    note(0, medium, block->digest);
    return *block;
}

void Ledger::count_child(Block& block, Block* before, int medium) {
    const int closed = closed_index(medium);
    if (closed < 0 || before == nullptr) return;
    const auto counted = static_cast<uint8_t>(closed == 0 ? COUNTED : COUNTED_TOO);
    if ((block.flags & counted) != 0 || block.parent != before->key) return;
    block.flags |= counted;
    ++before->children[closed];
}

void Ledger::store(Rank& rank, Book& book, const WireEvent& event) {
    if (event.ids == 0 && event.units == 0) return;
    const int medium = medium_of(event);
    const bool aligned = is_aligned(book, event, medium);
    if (event.ids == 0) return;
    Block* before = event.has_parent ? book.table.find(event.parent.key) : nullptr;
    const uint32_t stated = spaces_.number_of(event);
    uint32_t space = stated;
    if (event.has_parent && aligned) check_parent(rank, book, event, before, medium);
    if (before != nullptr && aligned) {
        const Space& above = spaces_.at(before->space);
        const bool salted = above.extra.empty() && event.extra.empty();
        if (!same(above.lora, event.lora) || !same(above.extra_key, event.extra_key) ||
            (salted && !same(above.salt, event.salt))) {
            breach(Fault::OTHER_NAMESPACE, event, 0, medium, batch_.ids[event.first_id].key,
                   before->key, before->depth + 1);
        } else {
            space = before->space;
        }
    }
    Chain chain;
    if (aligned) chain = begin_chain(event, before, space);
    const bool parent_known = !event.has_parent || before != nullptr;
    for (uint32_t page = 0; page < event.ids; ++page) {
        Block wanted{};
        wanted.key = batch_.ids[event.first_id + page].key;
        wanted.space = space;
        if (aligned) {
            const bool chained = check_hash(book, event, chain, page);
            wanted.flags = static_cast<uint8_t>(HAS_CONTENT | (chained ? CHAINED : 0));
            std::memcpy(wanted.digest, digests_.data() + size_t{page} * HASH_BYTES, HASH_BYTES);
            if (page != 0 || event.has_parent) {
                wanted.flags |= HAS_PARENT;
                wanted.parent =
                    page == 0 ? event.parent.key : batch_.ids[event.first_id + page - 1].key;
            }
            wanted.depth = before != nullptr ? before->depth + 1 : (parent_known ? 1 : 0);
        }
        Block& block = put(rank, book, event, page, medium, wanted);
        if (aligned) count_child(block, before, medium);
        before = &block;
    }
    spaces_.tidy(stated);
}

void Ledger::remove(Rank& rank, Book& book, const WireEvent& event) {
    const int medium = medium_of(event);
    const auto bit = static_cast<uint8_t>(1U << medium);
    const int closed = closed_index(medium);
    gone_.clear();
    for (uint32_t page = 0; page < event.ids; ++page) {
        const uint64_t key = batch_.ids[event.first_id + page].key;
        Block* block = book.table.find(key);
        if (block == nullptr || (block->media & bit) == 0) {
            if (!rank.complete) {
                ++book.counts.unjudged;
            } else {
                breach(Fault::REMOVED_ABSENT, event, page, medium, key, 0,
                       block == nullptr ? 0 : block->depth);
            }
            continue;
        }
        block->media = static_cast<uint8_t>(block->media & ~bit);
        ++book.counts.removed[static_cast<size_t>(medium)];
        --book.counts.blocks[static_cast<size_t>(medium)];
        const auto counted = static_cast<uint8_t>(closed == 0 ? COUNTED : COUNTED_TOO);
        if (closed >= 0 && (block->flags & counted) != 0) {
            block->flags = static_cast<uint8_t>(block->flags & ~counted);
            Block* before = book.table.find(block->parent);
            if (before != nullptr && before->children[closed] != 0) --before->children[closed];
        }
        gone_.push_back(key);
        note(1, medium, block->digest);
    }
    // The pages of one event may be listed in any order, so their children are looked for after it.
    for (uint32_t at = 0; at < gone_.size(); ++at) {
        Block* block = book.table.find(gone_[at]);
        if (block == nullptr) continue;
        if (closed >= 0 && block->children[closed] != 0) {
            if (rank.has_gap) {
                ++book.counts.unjudged;
            } else {
                breach(Fault::CHILD_STAYS, event, at, medium, block->key, block->children[closed],
                       block->depth);
            }
        }
        if (block->media != 0) continue;
        book.note_departure(block->key);
        const uint32_t space = block->space;
        book.table.remove(block->key);
        spaces_.release(space);
    }
}

}  // namespace kvcanon
