// The entry point of libFuzzer: any bytes are the batches of a stream, which are folded or refused.
//
// What is no batch must change nothing, and the counts of a book must be those of its blocks.
#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>

#include "ledger.hpp"
#include "msgpack_reader.hpp"

namespace {

using kvcanon::Block;
using kvcanon::Ledger;
using kvcanon::MOST_TIERS;

// Blocks by rank, group and tier, counted anew.
std::map<std::tuple<int64_t, int64_t, size_t>, uint64_t> counted(Ledger& ledger) {
    std::map<std::tuple<int64_t, int64_t, size_t>, uint64_t> found;
    for (const auto& [rank_number, rank] : ledger.ranks()) {
        for (const auto& [group, book] : rank.books) {
            uint64_t distinct = 0;
            std::array<uint64_t, MOST_TIERS> blocks{};
            book.table.each([&](const Block& block) {
                ++distinct;
                // A block that is nowhere is forgotten.
                if (block.tiers == 0) abort();
                for (size_t tier = 0; tier < MOST_TIERS; ++tier) {
                    blocks[tier] += block.tiers >> tier & 1U;
                }
            });
            if (distinct != book.table.size() || blocks != book.counts.blocks) abort();
            for (size_t tier = 0; tier < MOST_TIERS; ++tier) {
                if (blocks[tier] != 0) found[{rank_number, group, tier}] = blocks[tier];
            }
        }
    }
    return found;
}

// Of the tokens of the last batch, taken as a prompt, each page is one that is held.
void look_up(Ledger& ledger) {
    for (auto& [rank_number, rank] : ledger.ranks()) {
        for (auto& [group, book] : rank.books) {
            const auto tiers = book.tiers_of({}, ledger.batch().words);
            if (std::count(tiers.begin(), tiers.end(), 0) != 0) abort();
        }
    }
}

// What was folded and what was refused, printed at the end.
struct Frames {
    uint64_t folded = 0;
    uint64_t malformed = 0;
    ~Frames() {
        std::fprintf(stderr, "stat::frames: %" PRIu64 " folded, %" PRIu64 " malformed\n", folded,
                     malformed);
    }
};

Frames frames;

}  // namespace

// The first byte says how hashes and repeated stores are judged; then come batches, each after two
// bytes of length.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const kvcanon::LedgerOptions options{static_cast<kvcanon::Hashes>(data[0] % 3),
                                         static_cast<kvcanon::Repeats>(data[0] >> 5U & 3U),
                                         (data[0] & 4U) != 0 ? 14U : 0U, (data[0] & 8U) != 0,
                                         (data[0] & 16U) != 0};
    Ledger ledger(options, [](const kvcanon::Space&) { return std::vector<kvcanon::Seed>(1); });
    bool begins = true;
    for (size_t at = 1; at + 2 <= size;) {
        const size_t stated = static_cast<size_t>(data[at]) << 8U | data[at + 1];
        const size_t length = std::min(stated, size - at - 2);
        const auto before = counted(ledger);
        try {
            ledger.fold(data + at + 2, length, begins);
            begins = false;
            ++frames.folded;
        } catch (const kvcanon::Malformed&) {
            if (counted(ledger) != before) abort();
            ledger.lose();
            ++frames.malformed;
        }
        counted(ledger);
        look_up(ledger);
        at += 2 + length;
    }
    ledger.drop();
    return counted(ledger).empty() ? 0 : (abort(), 0);
}
