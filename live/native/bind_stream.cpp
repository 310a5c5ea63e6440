// The extension module kvcanon.live._stream: the ledger of one publisher's stream.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ledger.hpp"
#include "msgpack_reader.hpp"

namespace nb = nanobind;

namespace kvcanon {

namespace {

nb::object text_or_none(const Text& text) {
    if (!text.is_there) return nb::none();
    return nb::bytes(text.value.data(), text.value.size());
}

FindSeeds seeds_by(nb::callable find) {
    return [find = std::move(find)](const Space& space) {
        std::vector<Seed> seeds;
        const nb::object found =
            find(text_or_none(space.salt), text_or_none(space.lora), text_or_none(space.extra_key),
                 nb::bytes(space.extra.data(), space.extra.size()));
        for (const nb::handle item : nb::cast<nb::sequence>(found)) {
            const auto bytes = nb::cast<nb::bytes>(item);
            if (bytes.size() != HASH_BYTES) throw nb::value_error("A seed has 32 bytes.");
            Seed seed{};
            std::copy_n(static_cast<const uint8_t*>(bytes.data()), HASH_BYTES, seed.begin());
            seeds.push_back(seed);
        }
        return seeds;
    };
}

nb::tuple as_tuple(const Breach& breach) {
    return nb::make_tuple(static_cast<int>(breach.fault), breach.event, breach.page, breach.group,
                          breach.tier, breach.key, breach.other, breach.depth);
}

nb::tuple fold(Ledger& self, const nb::bytes& payload, bool begins) {
    const std::vector<Breach> breaches =
        self.fold(static_cast<const uint8_t*>(payload.data()), payload.size(), begins);
    nb::list listed;
    for (const Breach& breach : breaches) listed.append(as_tuple(breach));
    const WireBatch& batch = self.batch();
    return nb::make_tuple(batch.rank, batch.timestamp, batch.events.size() + batch.unknown,
                          batch.ids.size(), batch.unknown, listed);
}

nb::dict counts_of(const Book& book) {
    nb::dict counts;
    const BookCounts& from = book.counts;
    counts["blocks"] = std::vector<uint64_t>(from.blocks.begin(), from.blocks.end());
    counts["stored"] = std::vector<uint64_t>(from.stored.begin(), from.stored.end());
    counts["removed"] = std::vector<uint64_t>(from.removed.begin(), from.removed.end());
    counts["cleared"] = from.cleared;
    counts["distinct"] = book.table.size();
    counts["block_size"] = book.block_size;
    counts["fresh"] = from.fresh;
    counts["came_back"] = from.came_back;
    counts["repeated"] = from.repeated;
    counts["kind"] = static_cast<int>(book.kind);
    counts["window"] = book.window;
    counts["verified"] = from.verified;
    counts["unverified"] = from.unverified;
    counts["unjudged"] = from.unjudged;
    counts["bytes"] = book.bytes();
    return counts;
}

nb::list books(Ledger& self) {
    nb::list listed;
    for (const auto& [rank_number, rank] : self.ranks()) {
        for (const auto& [group, book] : rank.books) {
            listed.append(nb::make_tuple(rank_number, group, rank.complete, counts_of(book)));
        }
    }
    return listed;
}

// The tiers by their numbers: the number of the medium, whether it is remote, and who keeps it.
nb::list tiers(const Ledger& self) {
    nb::list listed;
    for (int number = 0; number < self.tiers().size(); ++number) {
        const Tier& tier = self.tiers().at(number);
        listed.append(nb::make_tuple(tier.medium, tier.is_remote,
                                     nb::bytes(tier.owner.data(), tier.owner.size())));
    }
    return listed;
}

// What is held, as 34 bytes a block: the digest, and a bit for each tier, little endian.
nb::bytes contents(Ledger& self, int64_t rank_number, int64_t group) {
    std::string bytes;
    const auto rank = self.ranks().find(rank_number);
    if (rank != self.ranks().end()) {
        const auto book = rank->second.books.find(group);
        if (book != rank->second.books.end()) {
            bytes.reserve(book->second.table.size() * (HASH_BYTES + 2));
            book->second.table.each([&](const Block& block) {
                bytes.append(reinterpret_cast<const char*>(block.digest), HASH_BYTES);
                bytes.push_back(static_cast<char>(block.tiers & 0xff));
                bytes.push_back(static_cast<char>(block.tiers >> 8));
            });
        }
    }
    return nb::bytes(bytes.data(), bytes.size());
}

// The tiers of a prompt's leading pages, as bits. A token that is no 32-bit number is in no page.
nb::list tiers_of(Ledger& self, int64_t rank_number, int64_t group, const nb::bytes& seed,
                  const std::vector<int64_t>& tokens) {
    nb::list listed;
    const auto rank = self.ranks().find(rank_number);
    if (rank == self.ranks().end()) return listed;
    const auto book = rank->second.books.find(group);
    if (book == rank->second.books.end()) return listed;
    Origin origin;
    if (seed.size() > HASH_BYTES) throw nb::value_error("A seed has 32 bytes.");
    std::copy_n(static_cast<const uint8_t*>(seed.data()), seed.size(), origin.bytes.begin());
    origin.length = seed.size();
    const auto is_token = [](int64_t token) { return token >= 0 && token <= UINT32_MAX; };
    const std::vector<uint32_t> words(tokens.begin(),
                                      std::find_if_not(tokens.begin(), tokens.end(), is_token));
    for (const uint16_t tiers : book->second.tiers_of(origin, words)) listed.append(tiers);
    return listed;
}

// Where each value of a file of MessagePack ends. Throws Malformed.
std::vector<size_t> value_ends(const nb::bytes& values) {
    const auto* begin = static_cast<const uint8_t*>(values.data());
    Reader reader(begin, values.size());
    std::vector<size_t> ends;
    while (!reader.at_end()) {
        reader.skip();
        ends.push_back(static_cast<size_t>(reader.position() - begin));
    }
    return ends;
}

void bind_stream(nb::module_& m) {
    m.doc() = "Folds a stream of KV events, and checks the laws that it can show by itself.";
    nb::exception<Malformed> malformed(m, "MalformedFrame", PyExc_ValueError);
    malformed.attr("__doc__") = "The bytes are no batch of events.";
    m.attr("BLOCK_BYTES") = sizeof(Block);
    m.def("value_ends", &value_ends, nb::arg("values"),
          "Where each value of a file of MessagePack ends. Raises: MalformedFrame.");
    nb::class_<Ledger>(m, "Ledger", "What a stream says is cached, by rank and group of layers.")
        .def(
            "__init__",
            [](Ledger* self, nb::callable find_seeds, int hashes, int repeats, uint32_t closed,
               bool tracing, bool finding_prompts) {
                new (self) Ledger({static_cast<Hashes>(hashes), static_cast<Repeats>(repeats),
                                   closed, tracing, finding_prompts},
                                  seeds_by(std::move(find_seeds)));
            },
            nb::arg("find_seeds"), nb::arg("hashes") = 0, nb::arg("repeats") = 0,
            nb::arg("closed") = 0, nb::arg("tracing") = false, nb::arg("finding_prompts") = false,
            nb::sig("def __init__(self, find_seeds: FindSeeds, hashes: int = 0, "
                    "repeats: int = 0, closed: int = 0, tracing: bool = False, "
                    "finding_prompts: bool = False) -> None"))
        .def("fold", &fold, nb::arg("payload"), nb::arg("begins") = false,
             nb::sig("def fold(self, payload: bytes, begins: bool = False) -> "
                     "tuple[int, float, int, int, int, list[BreachTuple]]"),
             "Fold a batch: its rank, time, events, pages, unknown events, and what it breaks.\n\n"
             "`begins` says that it is the first of a publisher. Raises: MalformedFrame.")
        .def("lose", &Ledger::lose,
             "Batches were lost: what may have been in them is no breach from now on.")
        .def("drop", &Ledger::drop,
             "Another publisher took the place of this one, and its first batches were lost.")
        .def(
            "take_trace",
            [](Ledger& self) {
                const std::string trace = self.take_trace();
                return nb::bytes(trace.data(), trace.size());
            },
            "What happened since the last call, 34 bytes each: kind, tier, digest.")
        .def("books", &books, nb::sig("def books(self) -> list[tuple[int, int, bool, BookCounts]]"),
             "Each book: its rank, group, whether all was seen, and its counts.")
        .def("tiers", &tiers, nb::sig("def tiers(self) -> list[tuple[int, bool, bytes]]"),
             "Each tier: the number of its medium, whether it is remote, and who keeps it.")
        .def_prop_ro(
            "namespaces", [](Ledger& self) { return self.spaces().used(); },
            "Namespaces that have blocks.")
        .def("contents", &contents, nb::arg("rank"), nb::arg("group"),
             "What a book holds, 34 bytes a block: the digest, and a bit for each tier.")
        .def("tiers_of", &tiers_of, nb::arg("rank"), nb::arg("group"), nb::arg("seed"),
             nb::arg("tokens"),
             nb::sig("def tiers_of(self, rank: int, group: int, seed: bytes, "
                     "tokens: Sequence[int]) -> list[int]"),
             "The tiers of a prompt's leading pages, as bits, up to the first that is nowhere.");
}

}  // namespace

}  // namespace kvcanon

NB_MODULE(_stream, m) { kvcanon::bind_stream(m); }
