#include "bind_hashed_pages.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bind_numbers.hpp"
#include "docstrings_hashed_pages.hpp"
#include "errors.hpp"
#include "hashed_pages.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvcanon {

namespace {

using Blocks = std::vector<int32_t>;
using Rows = std::vector<int32_t>;
using Jobs = std::set<int64_t>;

// Whether a block has the hash of a key; None is no hash.
bool is_key(nb::handle hash, const PageKey& key) {
    if (!PyBytes_Check(hash.ptr())) return false;
    const nb::bytes found = nb::borrow<nb::bytes>(hash);
    return std::string_view(found.c_str(), found.size()) == key.bytes();
}

// The tables, and the engine's list of blocks, which says what it finds in each.
class EngineTables {
  public:
    EngineTables(nb::handle rows, bool events) : pages(whole_number(rows, "rows"), events) {}

    void watch(const nb::list& blocks, int32_t null_block) {
        blocks_ = blocks;
        null_block_ = null_block;
        pages.reserve_blocks(blocks.size());
    }

    bool is_null(int32_t block) const { return block == null_block_; }

    // Throws: BadArgument for a block that the engine does not have.
    void require_block(int32_t block) const {
        if (block < 0 || static_cast<size_t>(block) >= blocks_.size()) {
            throw BadArgument("blocks", "has " + std::to_string(block) + "; the engine has " +
                                            std::to_string(blocks_.size()));
        }
    }

    // Whether the engine finds a page in a block. Throws: BadArgument.
    bool engine_finds(int32_t block, const PageKey& key) const {
        require_block(block);
        return is_key(hash_in(blocks_[static_cast<size_t>(block)]), key);
    }

    // What the engine finds in a block that is at hand.
    nb::object hash_in(nb::handle block) const { return nb::getattr(block, hash_name_); }

    nb::object behind(nb::handle block) const { return nb::getattr(block, next_name_); }

    int32_t number_of(nb::handle block) const {
        const auto number = nb::cast<int32_t>(nb::getattr(block, number_name_));
        require_block(number);
        return number;
    }

    HashedPages pages;

  private:
    nb::list blocks_;
    int32_t null_block_ = NOWHERE;
    // Made once, since they are looked up for each block.
    nb::object hash_name_ = nb::steal(PyUnicode_InternFromString("block_hash"));
    nb::object next_name_ = nb::steal(PyUnicode_InternFromString("next_free_block"));
    nb::object number_name_ = nb::steal(PyUnicode_InternFromString("block_id"));
};

// A run of a prompt's pages of one group: makes their keys, one after the other.
class KeysOfRun {
  public:
    // Throws: BadArgument where the prompt has no such pages.
    KeysOfRun(const nb::list& hashes, int64_t group, int64_t first, int64_t end)
        : hashes_(hashes), group_(group) {
        if (first < 0 || end > static_cast<int64_t>(hashes.size())) {
            throw BadArgument("end", "is " + std::to_string(end) + ", from " +
                                         std::to_string(first) + " on; the prompt has " +
                                         std::to_string(hashes.size()) + " hashes");
        }
        if (group < 0 || group > UINT32_MAX) throw BadArgument("group", "must fit in 4 bytes");
    }

    PageKey at(int64_t place) const {
        const nb::handle hash = hashes_[static_cast<size_t>(place)];
        char* bytes = nullptr;
        Py_ssize_t size = 0;
        if (PyBytes_AsStringAndSize(hash.ptr(), &bytes, &size) != 0) nb::raise_python_error();
        return {{bytes, static_cast<size_t>(size)}, static_cast<uint32_t>(group_)};
    }

    // A look-up waits for memory that is far away; those of a run need not wait for each other.
    void prefetch(const HashedPages& pages, int64_t first, int64_t end) const {
        for (int64_t place = first; place < end; ++place) pages.prefetch(at(place));
    }

  private:
    const nb::list& hashes_;
    const int64_t group_;
};

bool is_there(EngineTables& tables, const PageKey& key, bool or_device) {
    const HashedPage* page = tables.pages.find(key);
    if (page == nullptr) return false;
    if (page->is_on_host) return true;
    return or_device && page->block != NOWHERE && tables.engine_finds(page->block, key);
}

int64_t leading(EngineTables& tables, const nb::list& hashes, int64_t group, int64_t first,
                int64_t end, bool or_device) {
    const KeysOfRun keys(hashes, group, first, end);
    int64_t at = first;
    while (at < end && is_there(tables, keys.at(at), or_device)) {
        if (at == first) keys.prefetch(tables.pages, first + 1, end);
        ++at;
    }
    return at;
}

std::vector<bool> there(EngineTables& tables, const nb::list& hashes, int64_t group, int64_t first,
                        int64_t end, bool or_device) {
    const KeysOfRun keys(hashes, group, first, end);
    keys.prefetch(tables.pages, first, end);
    std::vector<bool> each;
    for (int64_t at = first; at < end; ++at) {
        each.push_back(is_there(tables, keys.at(at), or_device));
    }
    return each;
}

Rows hold(EngineTables& tables, const nb::list& hashes, int64_t group, int64_t first, int64_t end) {
    const KeysOfRun keys(hashes, group, first, end);
    Rows rows;
    for (int64_t at = first; at < end; ++at) {
        const HashedPage* page = tables.pages.find(keys.at(at));
        if (page == nullptr || !page->is_on_host) continue;
        rows.push_back(page->row);
        tables.pages.hold(page->row);
    }
    return rows;
}

void let_go(EngineTables& tables, const Rows& rows, bool moved) {
    for (auto row = rows.rbegin(); row != rows.rend(); ++row) tables.pages.let_go(*row, moved);
}

// Whether a page has a row, or takes one that `job` fills.
bool gets_row(EngineTables& tables, HashedPage& page, int64_t job) {
    if (page.row != NOWHERE) return true;
    // Of several blocks with it the last alone is known, which may have been given away.
    return page.block != NOWHERE && tables.pages.store(page, page.block, job, false);
}

std::optional<Rows> hold_all(EngineTables& tables, const nb::list& hashes, int64_t group,
                             int64_t first, int64_t end, int64_t job) {
    const KeysOfRun keys(hashes, group, first, end);
    Rows rows;
    for (int64_t at = first; at < end; ++at) {
        HashedPage* page = tables.pages.find(keys.at(at));
        if (page == nullptr || !gets_row(tables, *page, job)) {
            let_go(tables, rows, false);
            return std::nullopt;
        }
        rows.push_back(page->row);
        tables.pages.hold(page->row);
    }
    return rows;
}

std::vector<std::optional<int32_t>> fetch(EngineTables& tables, const nb::list& hashes,
                                          int64_t group, const std::vector<int64_t>& places,
                                          int64_t job, const nb::object& prompt) {
    // All keys first, so that a place that the prompt does not have changes nothing.
    std::vector<PageKey> keys;
    keys.reserve(places.size());
    for (const int64_t place : places) {
        keys.push_back(KeysOfRun(hashes, group, place, place + 1).at(place));
    }
    std::vector<std::optional<int32_t>> rows;
    rows.reserve(places.size());
    for (size_t i = 0; i < places.size(); ++i) {
        const int32_t row =
            tables.pages.fetch(keys[i], job, prompt, static_cast<int32_t>(places[i]));
        rows.push_back(row == NOWHERE ? std::nullopt : std::optional<int32_t>(row));
    }
    return rows;
}

void drop(EngineTables& tables, const Rows& rows) {
    for (const int32_t row : rows) tables.pages.drop(row);
}

Blocks learn(EngineTables& tables, const Blocks& blocks, const nb::list& hashes, int64_t group,
             int64_t first, int64_t end, const nb::object& prompt, bool loaded) {
    const KeysOfRun keys(hashes, group, first, end);
    keys.prefetch(tables.pages, first, end);
    Blocks learnt;
    for (int64_t at = first; at < end && at < static_cast<int64_t>(blocks.size()); ++at) {
        const int32_t block = blocks[static_cast<size_t>(at)];
        const PageKey key = keys.at(at);
        tables.require_block(block);
        // What is found there under another hash was given to another request since.
        if (!loaded && !tables.engine_finds(block, key)) continue;
        tables.pages.learn(block, key, prompt, static_cast<int32_t>(at));
        learnt.push_back(block);
    }
    return learnt;
}

Jobs give(EngineTables& tables, const Blocks& blocks, std::optional<int64_t> late_job) {
    Jobs readers;
    for (const int32_t block : blocks) {
        if (tables.is_null(block)) continue;
        HashedPage* page = tables.pages.in_block(block);
        if (page != nullptr && tables.engine_finds(block, page->key)) {
            page->is_used = true;
        } else if (page != nullptr) {
            if (late_job && page->row == NOWHERE) {
                tables.pages.store(*page, block, *late_job, true);
            } else if (late_job) {
                tables.pages.keep(*page);
            }
            tables.pages.forget(block);
        }
        const std::vector<int64_t>& jobs = tables.pages.readers_of(block);
        readers.insert(jobs.begin(), jobs.end());
    }
    return readers;
}

void store(EngineTables& tables, const Blocks& blocks, int64_t job) {
    for (const int32_t block : blocks) {
        HashedPage* page = tables.pages.in_block(block);
        if (page == nullptr) continue;
        if (page->row != NOWHERE) {
            tables.pages.keep(*page);
        } else if (tables.engine_finds(block, page->key)) {
            tables.pages.store(*page, block, job, false);
        }
    }
}

struct FreeBlock {
    int32_t number;
    nb::object hash;
};

// The first blocks of the engine's free queue; the last of the queue stands for its end.
std::vector<FreeBlock> free_blocks(const EngineTables& tables, nb::handle head, int64_t count) {
    std::vector<FreeBlock> free;
    nb::object block = tables.behind(head);
    while (!block.is_none() && static_cast<int64_t>(free.size()) < count) {
        nb::object next = tables.behind(block);
        if (next.is_none()) break;
        free.push_back({tables.number_of(block), tables.hash_in(block)});
        tables.pages.prefetch(free.back().number);
        block = std::move(next);
    }
    return free;
}

void store_ahead(EngineTables& tables, nb::handle head, int64_t count, int64_t job) {
    const std::vector<FreeBlock> free = free_blocks(tables, head, count);
    for (const FreeBlock& each : free) HashedPages::prefetch(tables.pages.in_block(each.number));
    for (const FreeBlock& each : free) {
        HashedPage* page = tables.pages.in_block(each.number);
        if (page == nullptr) continue;
        if (page->row != NOWHERE) {
            tables.pages.keep(*page);
        } else if (is_key(each.hash, page->key)) {
            tables.pages.store(*page, each.number, job, false);
        }
    }
}

// As the standard library's array: no object for each number, here or on the way to the workers.
template <typename Field>
nb::object array_of(const std::vector<PageStore>& stores, Field field) {
    std::vector<int32_t> numbers;
    numbers.reserve(stores.size());
    for (const PageStore& each : stores) numbers.push_back(static_cast<int32_t>(each.*field));
    const nb::bytes bytes(numbers.data(), numbers.size() * sizeof(int32_t));
    return nb::module_::import_("array").attr("array")("i", bytes);
}

nb::object copies(const EngineTables& tables, int64_t job) {
    const std::vector<PageStore>* stores = tables.pages.stores_of(job);
    if (stores == nullptr) return nb::none();
    return nb::make_tuple(array_of(*stores, &PageStore::block), array_of(*stores, &PageStore::row),
                          array_of(*stores, &PageStore::group));
}

void end_stores(EngineTables& tables, int64_t job, bool moved, bool check_blocks) {
    tables.pages.end_stores(job, moved, [&](int32_t block, const PageKey& key) {
        return !check_blocks || tables.engine_finds(block, key);
    });
}

Jobs jobs_before(const EngineTables& tables, const Blocks& blocks, const Rows& rows) {
    Jobs jobs;
    for (const int32_t block : blocks) {
        const std::vector<int64_t>& readers = tables.pages.readers_of(block);
        jobs.insert(readers.begin(), readers.end());
    }
    for (const int32_t row : rows) {
        const int64_t job = tables.pages.filled_by(row);
        if (job != 0) jobs.insert(job);
    }
    return jobs;
}

nb::bytes as_bytes(std::string_view bytes) { return nb::bytes(bytes.data(), bytes.size()); }

nb::list take_events(EngineTables& tables) {
    nb::list taken;
    for (const PageEvent& each : tables.pages.take_events()) {
        taken.append(nb::make_tuple(each.is_stored, as_bytes(each.key.hash()), each.key.group(),
                                    each.prompt, each.place));
    }
    return taken;
}

nb::set keys(const EngineTables& tables) {
    nb::set found;
    for (const PageKey& key : tables.pages.keys_on_host()) found.add(as_bytes(key.bytes()));
    return found;
}

nb::dict counts(const EngineTables& tables) {
    const StoreCounts& counts = tables.pages.counts();
    nb::dict named;
    named["stored_pages"] = counts.stored;
    named["failed_stores"] = counts.failed;
    named["late_pages"] = counts.late;
    named["lost_pages"] = counts.lost;
    named["evicted_pages"] = counts.evicted;
    return named;
}

}  // namespace

void bind_hashed_pages(nb::module_& m) {
    nb::class_<EngineTables>(m, "HashedPages", docs::HASHED_PAGES)
        .def(nb::init<nb::handle, bool>(), "rows"_a, nb::kw_only(), "events"_a = false,
             nb::sig(docs::HASHED_PAGES_INIT.signature), docs::HASHED_PAGES_INIT.text)
        .def("watch", &EngineTables::watch, "blocks"_a, "null_block"_a,
             nb::sig(docs::HASHED_PAGES_WATCH.signature), docs::HASHED_PAGES_WATCH.text)
        .def("leading", &leading, "hashes"_a, "group"_a, "first"_a, "end"_a, nb::kw_only(),
             "or_device"_a, nb::sig(docs::HASHED_PAGES_LEADING.signature),
             docs::HASHED_PAGES_LEADING.text)
        .def("there", &there, "hashes"_a, "group"_a, "first"_a, "end"_a, nb::kw_only(),
             "or_device"_a, nb::sig(docs::HASHED_PAGES_THERE.signature),
             docs::HASHED_PAGES_THERE.text)
        .def("hold", &hold, "hashes"_a, "group"_a, "first"_a, "end"_a,
             nb::sig(docs::HASHED_PAGES_HOLD.signature), docs::HASHED_PAGES_HOLD.text)
        .def("hold_all", &hold_all, "hashes"_a, "group"_a, "first"_a, "end"_a, "job"_a,
             nb::sig(docs::HASHED_PAGES_HOLD_ALL.signature), docs::HASHED_PAGES_HOLD_ALL.text)
        .def("fetch", &fetch, "hashes"_a, "group"_a, "places"_a, "job"_a, "prompt"_a = nb::none(),
             nb::sig(docs::HASHED_PAGES_FETCH.signature), docs::HASHED_PAGES_FETCH.text)
        .def("let_go", &let_go, "rows"_a, nb::kw_only(), "moved"_a = false,
             nb::sig(docs::HASHED_PAGES_LET_GO.signature), docs::HASHED_PAGES_LET_GO.text)
        .def("drop", &drop, "rows"_a, nb::sig(docs::HASHED_PAGES_DROP.signature),
             docs::HASHED_PAGES_DROP.text)
        .def("learn", &learn, "blocks"_a, "hashes"_a, "group"_a, "first"_a, "end"_a,
             "prompt"_a = nb::none(), nb::kw_only(), "loaded"_a = false,
             nb::sig(docs::HASHED_PAGES_LEARN.signature), docs::HASHED_PAGES_LEARN.text)
        .def("give", &give, "blocks"_a, "late_job"_a.none(),
             nb::sig(docs::HASHED_PAGES_GIVE.signature), docs::HASHED_PAGES_GIVE.text)
        .def("store", &store, "blocks"_a, "job"_a, nb::sig(docs::HASHED_PAGES_STORE.signature),
             docs::HASHED_PAGES_STORE.text)
        .def("store_ahead", &store_ahead, "head"_a, "count"_a, "job"_a,
             nb::sig(docs::HASHED_PAGES_STORE_AHEAD.signature), docs::HASHED_PAGES_STORE_AHEAD.text)
        .def("copies", &copies, "job"_a, nb::sig(docs::HASHED_PAGES_COPIES.signature),
             docs::HASHED_PAGES_COPIES.text)
        .def("end_stores", &end_stores, "job"_a, nb::kw_only(), "moved"_a, "check_blocks"_a = false,
             nb::sig(docs::HASHED_PAGES_END_STORES.signature), docs::HASHED_PAGES_END_STORES.text)
        .def("jobs_before", &jobs_before, "blocks"_a, "rows"_a,
             nb::sig(docs::HASHED_PAGES_JOBS_BEFORE.signature), docs::HASHED_PAGES_JOBS_BEFORE.text)
        .def(
            "clear", [](EngineTables& self) { self.pages.clear(); },
            nb::sig(docs::HASHED_PAGES_CLEAR.signature), docs::HASHED_PAGES_CLEAR.text)
        .def("take_events", &take_events, nb::sig(docs::HASHED_PAGES_TAKE_EVENTS.signature),
             docs::HASHED_PAGES_TAKE_EVENTS.text)
        .def("keys", &keys, nb::sig(docs::HASHED_PAGES_KEYS.signature),
             docs::HASHED_PAGES_KEYS.text)
        .def("counts", &counts, nb::sig(docs::HASHED_PAGES_COUNTS.signature),
             docs::HASHED_PAGES_COUNTS.text)
        .def_prop_ro(
            "on_host", [](const EngineTables& self) { return self.pages.on_host(); },
            "How many pages the host has.")
        .def_prop_ro(
            "held", [](const EngineTables& self) { return self.pages.held(); },
            "How many of them are held.")
        .def_prop_ro(
            "storing", [](const EngineTables& self) { return self.pages.storing(); },
            "How many pages are being copied there, or will be.")
        .def_prop_ro(
            "takeable", [](const EngineTables& self) { return self.pages.takeable(); },
            "How many rows are free, or may be evicted.");
}

}  // namespace kvcanon
