#include "hashed_pages.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "errors.hpp"

namespace kvcanon {

namespace {

constexpr int32_t MOST_BLOCKS = std::numeric_limits<int32_t>::max() - 1;

int32_t row_count(int64_t rows) {
    if (rows < 1 || rows > MOST_BLOCKS) {
        throw BadArgument("rows", "is " + std::to_string(rows) + "; give at least 1, in 31 bits");
    }
    return static_cast<int32_t>(rows);
}

}  // namespace

HashedPages::HashedPages(int64_t rows, bool keeps_events)
    : rows_(row_count(rows)), keeps_events_(keeps_events) {
    pages_.reserve(static_cast<size_t>(rows));
}

void HashedPages::reserve_blocks(size_t blocks) {
    pages_.reserve(static_cast<size_t>(rows_.count()) + blocks);
    blocks_.reserve(blocks);
}

std::vector<PageKey> HashedPages::keys_on_host() const {
    std::vector<PageKey> keys;
    pages_.each([&](const HashedPage& page) {
        if (page.is_on_host) keys.push_back(page.key);
    });
    return keys;
}

HashedPage* HashedPages::in_block(int32_t block) const {
    const auto at = static_cast<size_t>(block);
    return at < blocks_.size() ? blocks_[at].page : nullptr;
}

void HashedPages::learn(int32_t block, const PageKey& key, const nanobind::object& prompt,
                        int32_t place) {
    DeviceBlock& holder = block_at(block);
    HashedPage& page = pages_.find_or_add(key);
    page.prompt = prompt;
    page.place = place;
    page.block = block;
    page.is_used = true;
    if (holder.page == &page) return;
    ++page.blocks;
    forget(block);
    holder.page = &page;
}

void HashedPages::forget(int32_t block) {
    HashedPage* page = in_block(block);
    if (page == nullptr) return;
    blocks_[static_cast<size_t>(block)].page = nullptr;
    --page->blocks;
    if (page->block == block) page->block = NOWHERE;
    erase_if_nowhere(*page);
}

bool HashedPages::store(HashedPage& page, int32_t block, int64_t job, bool is_late) {
    assert(page.row == NOWHERE);
    DeviceBlock& source = block_at(block);
    if (take_row(page, block, job) == NOWHERE) {
        ++counts_.lost;
        return false;
    }
    source.readers.push_back(job);
    counts_.late += is_late ? 1 : 0;
    return true;
}

int32_t HashedPages::fetch(const PageKey& key, int64_t job, const nanobind::object& prompt,
                           int32_t place) {
    HashedPage& page = pages_.find_or_add(key);
    if (page.row != NOWHERE) return NOWHERE;
    const int32_t row = take_row(page, NOWHERE, job);
    if (row == NOWHERE) {
        erase_if_nowhere(page);
        return NOWHERE;
    }
    page.prompt = prompt;
    page.place = place;
    return row;
}

int32_t HashedPages::take_row(HashedPage& page, int32_t block, int64_t job) {
    if (!rows_.has_free()) {
        const int32_t oldest = rows_.oldest();
        if (oldest == NOWHERE) return NOWHERE;
        ++counts_.evicted;
        leave_host(*rows_[oldest].page);
    }
    const int32_t row = rows_.take_free();
    jobs_[job].push_back({block, row, page.key.group()});
    rows_[row].page = &page;
    rows_[row].filled_by = job;
    page.row = row;
    page.is_used = false;
    ++storing_;
    return row;
}

const std::vector<PageStore>* HashedPages::stores_of(int64_t job) const {
    const auto found = jobs_.find(job);
    return found == jobs_.end() ? nullptr : &found->second;
}

void HashedPages::end_stores(int64_t job, bool has_moved, const HoldsPage& still_holds) {
    const auto found = jobs_.find(job);
    if (found == jobs_.end()) return;
    const std::vector<PageStore> stores = std::move(found->second);
    jobs_.erase(found);
    for (const PageStore& store : stores) {
        const bool is_fetched = store.block == NOWHERE;
        if (!is_fetched) {
            std::vector<int64_t>& readers = block_at(store.block).readers;
            readers.erase(std::find(readers.begin(), readers.end(), job));
            counts_.failed += has_moved ? 0 : 1;
        }
        --storing_;
        HostRow& row = rows_[store.row];
        row.filled_by = 0;
        // None after a reset, or where a load of this row has failed.
        if (row.page != nullptr) {
            if (has_moved && (is_fetched || still_holds(store.block, row.page->key))) {
                row.page->is_on_host = true;
                ++on_host_;
                counts_.stored += is_fetched ? 0 : 1;
                tell(true, *row.page);
            } else {
                leave_host(*row.page);
            }
        }
        let_go(store.row, false);
    }
}

const std::vector<int64_t>& HashedPages::readers_of(int32_t block) const {
    static const std::vector<int64_t> none;
    const auto at = static_cast<size_t>(block);
    return at < blocks_.size() ? blocks_[at].readers : none;
}

int64_t HashedPages::filled_by(int32_t row) const {
    require_row(row);
    return rows_[row].filled_by;
}

void HashedPages::hold(int32_t row) {
    require_row(row);
    rows_.hold(row);
}

void HashedPages::let_go(int32_t row, bool has_moved) {
    require_row(row);
    HostRow& held = rows_[row];
    if (held.holds == 0) throw BadArgument("rows", "has row " + std::to_string(row) + ", not held");
    if (has_moved && held.page != nullptr) held.is_leaving = true;
    if (held.holds == 1 && held.is_leaving) leave_host(*held.page);
    rows_.let_go(row);
}

void HashedPages::drop(int32_t row) {
    require_row(row);
    if (rows_[row].page != nullptr) leave_host(*rows_[row].page);
}

void HashedPages::keep(HashedPage& page) {
    // Looked at first, since a row is far away in memory.
    if (!page.is_used) return;
    page.is_used = false;
    rows_[page.row].is_leaving = false;
    rows_.use(page.row);
}

void HashedPages::clear() {
    for (int32_t row = 0; row < rows_.count(); ++row) drop(row);
    for (size_t block = 0; block < blocks_.size(); ++block) forget(static_cast<int32_t>(block));
}

std::vector<PageEvent> HashedPages::take_events() { return std::exchange(events_, {}); }

HashedPages::DeviceBlock& HashedPages::block_at(int32_t block) {
    if (block < 0 || block > MOST_BLOCKS) {
        throw BadArgument("blocks", "has " + std::to_string(block) + ", which no block can have");
    }
    const auto at = static_cast<size_t>(block);
    if (at >= blocks_.size()) blocks_.resize(std::max(at + 1, 2 * blocks_.size()));
    return blocks_[at];
}

void HashedPages::require_row(int32_t row) const {
    if (row < 0 || row >= rows_.count()) {
        throw BadArgument("rows", "has " + std::to_string(row) + "; the host has " +
                                      std::to_string(rows_.count()));
    }
}

void HashedPages::leave_host(HashedPage& page) {
    if (page.is_on_host) {
        --on_host_;
        tell(false, page);
    }
    page.is_on_host = false;
    rows_.empty(std::exchange(page.row, NOWHERE));
    erase_if_nowhere(page);
}

void HashedPages::erase_if_nowhere(HashedPage& page) {
    if (page.blocks == 0 && page.row == NOWHERE) pages_.erase(page);
}

void HashedPages::tell(bool is_stored, const HashedPage& page) {
    if (keeps_events_) events_.push_back({is_stored, page.key, page.prompt, page.place});
}

}  // namespace kvcanon
