#include "ledger.hpp"

#include <cstring>
#include <utility>

#include "msgpack_reader.hpp"

namespace kvcanon {

namespace {

// Breaches of one batch beyond these are counted by their first.
constexpr size_t MOST_BREACHES = 1024;
// Ranks and groups of one publisher together.
constexpr size_t MOST_BOOKS = 256;
// More copies of one block than requests run at once: they are reports.
constexpr uint32_t MOST_COPIES = 256;

uint16_t bit_of(int tier) { return static_cast<uint16_t>(1U << tier); }

bool same(const Text& one, const Text& other) {
    return one.is_there == other.is_there && one.value == other.value;
}

}  // namespace

Ledger::Ledger(LedgerOptions options, FindSeeds find_seeds)
    : options_(options), spaces_(std::move(find_seeds)) {}

std::vector<Breach> Ledger::fold(const uint8_t* payload, size_t size, bool begins) {
    batch_.decode(payload, size);
    require_few_books();
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
            Book& book = rank.books[event.group];
            learn(rank, book, event);
            store({rank, book, event, named_tier(event)});
        } else {
            remove(rank, event);
        }
    }
    return std::move(breaches_);
}

// Refuse a batch that would make too many books. Throws Malformed.
void Ledger::require_few_books() const {
    size_t books = 1;
    for (const auto& [number, rank] : ranks_) books += rank.books.size();
    const auto rank = ranks_.find(batch_.rank);
    std::array<bool, MOST_BOOKS> counted{};
    for (const WireEvent& event : batch_.events) {
        const auto group = static_cast<size_t>(event.group);
        if (counted[group]) continue;
        counted[group] = true;
        if (rank == ranks_.end() || rank->second.books.count(event.group) == 0) ++books;
    }
    if (books <= MOST_BOOKS + 1) return;
    throw Malformed("its publisher names more than " + std::to_string(MOST_BOOKS) +
                    " ranks and groups");
}

// Note what an event says of its group and of its publisher.
void Ledger::learn(Rank& rank, Book& book, const WireEvent& event) {
    if (event.group_kind != GroupKind::UNSAID) {
        book.kind = event.group_kind;
        book.window = event.window;
    }
    rank.says_kinds |= event.group_kind != GroupKind::UNSAID || event.locality.is_there ||
                       event.ownership.is_there;
}

void Ledger::note(Trace what, int tier, const uint8_t* digest) {
    if (!options_.tracing) return;
    trace_.push_back(static_cast<char>(what));
    trace_.push_back(static_cast<char>(tier));
    trace_.append(reinterpret_cast<const char*>(digest), HASH_BYTES);
}

void Ledger::lose() {
    saw_all_ = false;
    for (auto& [number, rank] : ranks_) {
        rank.complete = false;
        rank.has_gap = true;
        ++rank.epoch;
    }
}

void Ledger::drop() {
    for (auto& [number, rank] : ranks_) clear(rank);
    ranks_.clear();
    // Another engine may hash otherwise.
    spaces_.at(0).verified = 0;
    saw_all_ = false;
}

void Ledger::clear(Rank& rank) {
    for (auto& [group, book] : rank.books) {
        book.table.each([&](const Block& block) { spaces_.release(block.space); });
        book.table.clear();
        book.forget_copies();
        book.counts.blocks = {};
        book.block_size = 0;
    }
    rank.complete = true;
    rank.has_gap = false;
    rank.epoch = 0;
}

int Ledger::named_tier(const WireEvent& event) {
    const int medium = medium_named(event.medium);
    if (medium == OTHER_MEDIUM) breach(Fault::UNKNOWN_MEDIUM, event, 0, OTHER_MEDIUM, 0, 0, 0);
    return tiers_.number_of(medium, event);
}

Repeats Ledger::repeats_of(const Rank& rank) const {
    if (options_.repeats != Repeats::AUTO) return options_.repeats;
    if (!rank.says_kinds) return Repeats::ONCE;
    return rank.reports ? Repeats::REPORTED : Repeats::COUNTED;
}

// Whether a block on this tier needs the block before it there.
bool Ledger::is_closed(const Place& place) const {
    const int medium = tiers_.at(place.tier).medium;
    return medium == GPU_MEDIUM || (options_.closed >> medium & 1U) != 0;
}

// Where blocks of this tier are counted as children; -1 where they are not.
int Ledger::child_slot(const Place& place) const {
    const bool counts = place.tier < CLOSABLE_MEDIA && place.book.needs_parents();
    return counts && is_closed(place) ? place.tier : -1;
}

void Ledger::breach(Fault fault, const WireEvent& event, uint32_t page, int tier, uint64_t key,
                    uint64_t other, uint32_t depth) {
    if (breaches_.size() == MOST_BREACHES) return;
    breaches_.push_back({fault, event.index, page, event.group, tier, key, other, depth});
}

// Whether a store is of a part of a block: where states are kept, vLLM finds blocks by their parts.
bool Ledger::is_part(const Place& place) {
    const int64_t whole = place.book.block_size, size = place.event.block_size;
    return place.rank.says_kinds && size > 0 && whole > size && whole % size == 0;
}

bool Ledger::is_aligned(const Place& place) {
    const auto& [rank, book, event, tier] = place;
    const uint64_t key = event.ids == 0 ? 0 : batch_.ids[event.first_id].key;
    if (event.units == 0 && event.ids != 0) {
        // vLLM's offloading describes blocks of full attention alone.
        if (book.needs_parents()) breach(Fault::NO_TOKENS, event, 0, tier, key, event.ids, 0);
        return false;
    }
    const bool is_size = event.block_size > 0 && event.block_size <= INT32_MAX;
    const auto size = static_cast<uint64_t>(event.block_size);
    // A window or states may leave out blocks among the tokens, and does not say which.
    const bool may_skip = !book.needs_parents() && is_size && event.units % size == 0;
    if (may_skip && size * event.ids < event.units) return false;
    if (!is_size || size * event.ids != event.units) {
        breach(Fault::MISALIGNED, event, 0, tier, key, event.units, 0);
        return false;
    }
    const bool differs = book.block_size != 0 && book.block_size != event.block_size;
    if (book.block_size == 0 || (rank.says_kinds && event.block_size % book.block_size == 0)) {
        book.block_size = event.block_size;
    } else if (differs && !is_part(place)) {
        breach(Fault::OTHER_BLOCK_SIZE, event, 0, tier, key, static_cast<uint64_t>(book.block_size),
               0);
    }
    return true;
}

void Ledger::check_parent(const Place& place, const Block* before) {
    const auto& [rank, book, event, tier] = place;
    const bool closed = is_closed(place);
    if (before != nullptr && (!closed || (before->tiers & bit_of(tier)) != 0)) return;
    // vLLM's tiers below the device are announced in any order, and its parts follow parts.
    if (!book.needs_parents() || (rank.says_kinds && !closed) || is_part(place)) return;
    if (!rank.complete || book.reported.has(event.parent.key)) {
        ++book.counts.unjudged;
        return;
    }
    const uint32_t depth = before == nullptr ? 0 : before->depth + 1;
    breach(Fault::PARENT_ABSENT, event, 0, tier, batch_.ids[event.first_id].key, event.parent.key,
           depth);
}

// Compare what a store says of a block with what is known of it.
void Ledger::compare(const Place& place, uint32_t page, Block& block, const Block& wanted) {
    constexpr uint16_t CONTENT = HAS_PARENT | HAS_CONTENT | CHAINED | ROOTED;
    if ((block.flags & ~wanted.flags & NAMELESS) != 0) {
        spaces_.hold(wanted.space);
        spaces_.release(block.space);
        block.space = wanted.space;
        block.flags = static_cast<uint16_t>(block.flags & ~NAMELESS);
    }
    const bool both = (block.flags & wanted.flags & HAS_CONTENT) != 0;
    const bool is_named = ((block.flags | wanted.flags) & NAMELESS) == 0;
    constexpr uint16_t HOW = CHAINED | ROOTED;
    const bool same_kind = (block.flags & HOW) == (wanted.flags & HOW);
    if (both && is_named && block.space != wanted.space) {
        breach(Fault::OTHER_NAMESPACE, place.event, page, place.tier, block.key, block.parent,
               block.depth);
    } else if (both && same_kind && std::memcmp(block.digest, wanted.digest, HASH_BYTES) != 0) {
        breach(Fault::OTHER_CONTENT, place.event, page, place.tier, block.key, block.parent,
               block.depth);
    }
    const bool tells_more = !both || (block.flags & HOW) < (wanted.flags & HOW);
    if ((wanted.flags & HAS_CONTENT) == 0 || !tells_more) return;
    std::memcpy(block.digest, wanted.digest, HASH_BYTES);
    if (!both) block.parent = wanted.parent;
    block.depth = wanted.depth;
    block.flags = static_cast<uint16_t>((block.flags & ~CONTENT) | (wanted.flags & CONTENT));
}

// A block was stored where it is.
void Ledger::repeat(const Place& place, uint32_t page, const Block& block) {
    const auto& [rank, book, event, tier] = place;
    const Repeats repeats = repeats_of(rank);
    if (repeats == Repeats::ONCE) {
        if (block.epoch != rank.epoch) {
            ++book.counts.unjudged;  // Its remove may have been lost.
        } else {
            breach(Fault::STORED_TWICE, event, page, tier, block.key, 0, block.depth);
        }
        return;
    }
    ++book.counts.repeated;
    if (repeats == Repeats::REPORTED) {
        book.reported.note(block.key);
    } else if (block.epoch == rank.epoch && book.add_copy(block.key, tier) > MOST_COPIES &&
               options_.repeats == Repeats::AUTO) {
        rank.reports = true;
        for (auto& [group, each] : rank.books) each.forget_copies();
    }
}

Block& Ledger::put(const Place& place, uint32_t page, const Block& wanted) {
    const auto& [rank, book, event, tier] = place;
    ++book.counts.stored[static_cast<size_t>(tier)];
    Block* block = book.table.find(wanted.key);
    if (block == nullptr) {
        block = &book.table.add(wanted.key);
        ++book.counts.fresh;
        if (book.departed.has(wanted.key)) ++book.counts.came_back;
        *block = wanted;
        spaces_.hold(block->space);
    } else {
        compare(place, page, *block, wanted);
    }
    if ((block->tiers & bit_of(tier)) == 0) {
        block->tiers = static_cast<uint16_t>(block->tiers | bit_of(tier));
        ++book.counts.blocks[static_cast<size_t>(tier)];
    } else {
        repeat(place, page, *block);
    }
    block->epoch = rank.epoch;
    note(Trace::STORED, tier, block->digest);
    return *block;
}

void Ledger::count_child(const Place& place, Block& block, Block* before) {
    const int slot = child_slot(place);
    if (slot < 0 || before == nullptr || is_part(place)) return;
    const auto counted = static_cast<uint16_t>(COUNTED << slot);
    if ((block.flags & counted) != 0 || block.parent != before->key) return;
    block.flags = static_cast<uint16_t>(block.flags | counted);
    ++before->children[slot];
}

// The namespace of a store: that of the block before, or what the event says.
uint32_t Ledger::space_of(const Place& place, const Block* before, uint32_t stated) {
    const WireEvent& event = place.event;
    if (before == nullptr || (before->flags & NAMELESS) != 0) return stated;
    const Space& above = spaces_.at(before->space);
    // vLLM names the salt with the first block alone.
    const bool salted = above.extra.empty() && event.extras == 0;
    if (same(above.lora, event.lora) && same(above.extra_key, event.extra_key) &&
        (!salted || same(above.salt, event.salt))) {
        return before->space;
    }
    breach(Fault::OTHER_NAMESPACE, event, 0, place.tier, batch_.ids[event.first_id].key,
           before->key, before->depth + 1);
    return stated;
}

// Write what a store says of the tokens of a page; `before` may be nullptr.
void Ledger::describe(const Place& place, uint32_t page, const Block* before, Chain& chain,
                      Block& wanted) {
    const WireEvent& event = place.event;
    if (chain.paged) hash_page(event, chain, page);
    const bool chained = check_hash(place, chain, page);
    if (chain.paged) mix_extra(event, page);
    wanted.flags =
        static_cast<uint16_t>(HAS_CONTENT | (chained ? CHAINED : 0) | (chain.rooted ? ROOTED : 0) |
                              (chain.nameless ? NAMELESS : 0));
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

void Ledger::store(const Place& place) {
    const auto& [rank, book, event, tier] = place;
    if (event.ids == 0 && event.units == 0) return;
    // Of a book that vLLM begins nothing is known: its first store may be of a part.
    const bool is_first = rank.says_kinds && book.block_size == 0;
    const bool aligned = is_aligned(place);
    if (event.ids == 0) return;
    Block* before = event.has_parent ? book.table.find(event.parent.key) : nullptr;
    const std::string_view extra = batch_.extra_of(event, 0);
    const bool has_names = !event.has_parent && names_among(extra) != 0;
    const uint32_t stated = spaces_.number_of(event, has_names ? extra : std::string_view());
    uint32_t space = stated;
    Chain chain;
    if (aligned) {
        if (event.has_parent && !is_first) check_parent(place, before);
        space = space_of(place, before, stated);
        chain = begin_chain(event, before, space);
        if (options_.finding_prompts) note_announced(book, event, spaces_.at(stated));
    }
    for (uint32_t page = 0; page < event.ids; ++page) {
        Block wanted{};
        wanted.key = batch_.ids[event.first_id + page].key;
        wanted.space = space;
        if (aligned) describe(place, page, before, chain, wanted);
        Block& block = put(place, page, wanted);
        if (aligned) count_child(place, block, before);
        before = &block;
    }
    spaces_.tidy(stated);
}

// The tier that a remove takes a block off: where it says no more than a medium, the one tier of
// that medium that the block is on.
int Ledger::tier_of(const WireEvent& event, const Block* block, int tier) const {
    if (block == nullptr || (block->tiers & bit_of(tier)) != 0) return tier;
    if (event.locality.is_there || event.ownership.is_there) return tier;
    int found = tier, count = 0;
    for (int other = static_cast<int>(WIRE_MEDIA); other < tiers_.size(); ++other) {
        if (tiers_.at(other).medium != tier || (block->tiers & bit_of(other)) == 0) continue;
        found = other;
        ++count;
    }
    return count == 1 ? found : tier;
}

// Take a block off a tier, and return whether it left it.
bool Ledger::take_off(const Place& place, uint32_t page) {
    const auto& [rank, book, event, tier] = place;
    const uint64_t key = batch_.ids[event.first_id + page].key;
    Block* block = book.table.find(key);
    if (block == nullptr || (block->tiers & bit_of(tier)) == 0) {
        const uint32_t depth = block == nullptr ? 0 : block->depth;
        if (rank.complete && !book.reported.has(key)) {
            breach(Fault::REMOVED_ABSENT, event, page, tier, key, 0, depth);
        } else {
            ++book.counts.unjudged;
        }
        return false;
    }
    if (book.take_copy(key, tier)) return false;
    block->tiers = static_cast<uint16_t>(block->tiers & ~bit_of(tier));
    ++book.counts.removed[static_cast<size_t>(tier)];
    --book.counts.blocks[static_cast<size_t>(tier)];
    note(Trace::REMOVED, tier, block->digest);
    const int slot = child_slot(place);
    const auto counted = static_cast<uint16_t>(slot < 0 ? 0 : COUNTED << slot);
    if ((block->flags & counted) == 0) return true;
    block->flags = static_cast<uint16_t>(block->flags & ~counted);
    Block* before = book.table.find(block->parent);
    if (before != nullptr && before->children[slot] != 0) --before->children[slot];
    return true;
}

// A block left a tier: no block that follows it may still be there.
void Ledger::check_children(const Place& place, uint32_t page, const Block& block) {
    const auto& [rank, book, event, tier] = place;
    const int slot = child_slot(place);
    if (slot < 0 || block.children[slot] == 0) return;
    if (rank.has_gap || book.reported.has(block.key)) {
        ++book.counts.unjudged;
        return;
    }
    breach(Fault::CHILD_STAYS, event, page, tier, block.key, block.children[slot], block.depth);
}

// The book that a remove is about. One that names no group is about the group that holds the block;
// where several do, that is a breach, and the first is taken.
Book& Ledger::book_of(Rank& rank, WireEvent& event, uint32_t page, int tier) {
    Book& named = rank.books[event.group];
    if (event.has_group || rank.books.size() == 1) return named;
    const uint64_t key = batch_.ids[event.first_id + page].key;
    Book* holding = nullptr;
    int64_t first = 0;
    uint64_t holders = 0;
    for (auto& [group, book] : rank.books) {
        const Block* block = book.table.find(key);
        if (block == nullptr || (block->tiers & bit_of(tier_of(event, block, tier))) == 0) continue;
        if (holders++ == 0) {
            holding = &book;
            first = group;
        }
    }
    if (holders == 0) return named;
    event.group = first;
    if (holders > 1) breach(Fault::GROUP_UNSAID, event, page, tier, key, holders, 0);
    return *holding;
}

void Ledger::remove(Rank& rank, const WireEvent& event) {
    const int tier = named_tier(event);
    // The pages of one event may be listed in any order, so their children are looked for after it.
    struct Gone {
        Book* book;
        int64_t group;
        int tier;
        uint32_t page;
    };
    std::vector<Gone> gone;
    WireEvent named = event;
    for (uint32_t page = 0; page < event.ids; ++page) {
        named.group = event.group;
        Book& book = book_of(rank, named, page, tier);
        const Block* block = book.table.find(batch_.ids[event.first_id + page].key);
        const int from = tier_of(event, block, tier);
        if (take_off({rank, book, named, from}, page)) {
            gone.push_back({&book, named.group, from, page});
        }
    }
    for (const Gone& each : gone) {
        const Block* block = each.book->table.find(batch_.ids[event.first_id + each.page].key);
        if (block == nullptr) continue;
        named.group = each.group;
        check_children({rank, *each.book, named, each.tier}, each.page, *block);
        if (block->tiers != 0) continue;
        each.book->departed.note(block->key);
        const uint32_t space = block->space;
        each.book->table.remove(block->key);
        spaces_.release(space);
    }
}

}  // namespace kvcanon
