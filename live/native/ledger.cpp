#include "ledger.hpp"

#include <cstring>
#include <utility>

#include "msgpack_reader.hpp"

namespace kvcanon {

namespace {

// Breaches of one batch beyond these are counted by their first.
constexpr size_t MOST_BREACHES = 1024;

bool same(const Text& one, const Text& other) {
    return one.is_there == other.is_there && one.value == other.value;
}

}  // namespace

void Book::note_departure(uint64_t key) {
    if (departed_.empty()) departed_.resize(DEPARTED);
    departed_[key & (DEPARTED - 1)] = static_cast<uint32_t>(key >> 32) | 1;
}

bool Book::departed(uint64_t key) const {
    return !departed_.empty() &&
           departed_[key & (DEPARTED - 1)] == (static_cast<uint32_t>(key >> 32) | 1);
}

std::vector<uint8_t> Book::media_of(Origin seed, const std::vector<uint32_t>& tokens) {
    std::vector<uint8_t> media;
    const auto size = static_cast<size_t>(block_size);
    for (size_t at = 0; size != 0 && at + size <= tokens.size(); at += size) {
        const auto key = announced.find(seed, tokens.data() + at, size);
        if (!key) break;
        const Block* block = table.find(*key);
        if (block == nullptr) break;
        media.push_back(block->media);
        seed = Origin::of_page(*key);
    }
    return media;
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
            note(Trace::CLEARED, 0, Seed{}.data());
        } else if (event.kind == WireKind::STORED) {
            store(rank, rank.books[event.group], event);
        } else {
            remove(rank, rank.books[event.group], event);
        }
    }
    return std::move(breaches_);
}

void Ledger::note(Trace what, int medium, const uint8_t* digest) {
    if (!options_.tracing) return;
    trace_.push_back(static_cast<char>(what));
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
    if (name == "DISK" || name == "STORAGE") return DISK_MEDIUM;
    if (name == "EXTERNAL") return EXTERNAL_MEDIUM;
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
    note(Trace::STORED, medium, block->digest);
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

// The namespace of a store: that of the block before, or what the event says.
uint32_t Ledger::space_of(const WireEvent& event, const Block* before, uint32_t stated,
                          int medium) {
    if (before == nullptr) return stated;
    const Space& above = spaces_.at(before->space);
    // vLLM names the salt with the first block alone.
    const bool salted = above.extra.empty() && event.extra.empty();
    if (same(above.lora, event.lora) && same(above.extra_key, event.extra_key) &&
        (!salted || same(above.salt, event.salt))) {
        return before->space;
    }
    breach(Fault::OTHER_NAMESPACE, event, 0, medium, batch_.ids[event.first_id].key, before->key,
           before->depth + 1);
    return stated;
}

// Write what a store says of the tokens of a page; `before` may be nullptr.
void Ledger::describe(Book& book, const WireEvent& event, uint32_t page, const Block* before,
                      Chain& chain, Block& wanted) {
    const bool chained = check_hash(book, event, chain, page);
    wanted.flags = static_cast<uint8_t>(HAS_CONTENT | (chained ? CHAINED : 0));
    std::memcpy(wanted.digest, digests_.data() + size_t{page} * HASH_BYTES, HASH_BYTES);
    if (page != 0 || event.has_parent) {
        wanted.flags |= HAS_PARENT;
        wanted.parent = page == 0 ? event.parent.key : batch_.ids[event.first_id + page - 1].key;
    }
    const bool is_first = page == 0 && !event.has_parent;
    wanted.depth = before != nullptr ? before->depth + 1 : (is_first ? 1 : 0);
}

// Remember the pages of a store by their tokens and what is before them.
void Ledger::note_announced(Book& book, const WireEvent& event, const Space& space) {
    Origin origin;
    if (event.has_parent) {
        origin = Origin::of_page(event.parent.key);
    } else {
        const std::vector<Seed> seeds = spaces_.seeds_of_prompts(space);
        if (!seeds.empty()) origin = {seeds[0], HASH_BYTES};
    }
    const uint32_t* words = batch_.words.data() + event.first_word;
    const auto page_words = static_cast<size_t>(event.block_size) * event.unit_words;
    for (uint32_t page = 0; page < event.ids; ++page) {
        const uint64_t key = batch_.ids[event.first_id + page].key;
        book.announced.note(origin, words + page * page_words, page_words, key);
        origin = Origin::of_page(key);
    }
}

void Ledger::store(Rank& rank, Book& book, const WireEvent& event) {
    if (event.ids == 0 && event.units == 0) return;
    const int medium = medium_of(event);
    const bool aligned = is_aligned(book, event, medium);
    if (event.ids == 0) return;
    Block* before = event.has_parent ? book.table.find(event.parent.key) : nullptr;
    const uint32_t stated = spaces_.number_of(event);
    uint32_t space = stated;
    Chain chain;
    if (aligned) {
        if (event.has_parent) check_parent(rank, book, event, before, medium);
        space = space_of(event, before, stated, medium);
        chain = begin_chain(event, before, space);
        if (options_.finding_prompts) note_announced(book, event, spaces_.at(stated));
    }
    for (uint32_t page = 0; page < event.ids; ++page) {
        Block wanted{};
        wanted.key = batch_.ids[event.first_id + page].key;
        wanted.space = space;
        if (aligned) describe(book, event, page, before, chain, wanted);
        Block& block = put(rank, book, event, page, medium, wanted);
        if (aligned) count_child(block, before, medium);
        before = &block;
    }
    spaces_.tidy(stated);
}

// Take a block off a medium, and return whether it was there.
bool Ledger::take_off(Rank& rank, Book& book, const WireEvent& event, uint32_t page, int medium) {
    const auto bit = static_cast<uint8_t>(1U << medium);
    const uint64_t key = batch_.ids[event.first_id + page].key;
    Block* block = book.table.find(key);
    if (block == nullptr || (block->media & bit) == 0) {
        const uint32_t depth = block == nullptr ? 0 : block->depth;
        if (rank.complete) {
            breach(Fault::REMOVED_ABSENT, event, page, medium, key, 0, depth);
        } else {
            ++book.counts.unjudged;
        }
        return false;
    }
    block->media = static_cast<uint8_t>(block->media & ~bit);
    ++book.counts.removed[static_cast<size_t>(medium)];
    --book.counts.blocks[static_cast<size_t>(medium)];
    note(Trace::REMOVED, medium, block->digest);
    const int closed = closed_index(medium);
    const auto counted = static_cast<uint8_t>(closed == 0 ? COUNTED : COUNTED_TOO);
    if (closed < 0 || (block->flags & counted) == 0) return true;
    block->flags = static_cast<uint8_t>(block->flags & ~counted);
    Block* before = book.table.find(block->parent);
    if (before != nullptr && before->children[closed] != 0) --before->children[closed];
    return true;
}

// A block left a medium: no block that follows it may still be there.
void Ledger::check_children(Rank& rank, Book& book, const WireEvent& event, uint32_t page,
                            int medium, const Block& block) {
    const int closed = closed_index(medium);
    if (closed < 0 || block.children[closed] == 0) return;
    if (rank.has_gap) {
        ++book.counts.unjudged;
        return;
    }
    breach(Fault::CHILD_STAYS, event, page, medium, block.key, block.children[closed], block.depth);
}

void Ledger::remove(Rank& rank, Book& book, const WireEvent& event) {
    const int medium = medium_of(event);
    gone_.clear();
    for (uint32_t page = 0; page < event.ids; ++page) {
        if (take_off(rank, book, event, page, medium)) gone_.push_back(page);
    }
    // The pages of one event may be listed in any order, so their children are looked for after it.
    for (const uint32_t page : gone_) {
        const Block* block = book.table.find(batch_.ids[event.first_id + page].key);
        if (block == nullptr) continue;
        check_children(rank, book, event, page, medium, *block);
        if (block->media != 0) continue;
        book.note_departure(block->key);
        const uint32_t space = block->space;
        book.table.remove(block->key);
        spaces_.release(space);
    }
}

}  // namespace kvcanon
