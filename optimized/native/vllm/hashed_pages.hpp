// Where the bytes of each page are, for a host tier under an engine that has its own device blocks.
//
// The engine names pages by keys, and evicts without a word: its blocks are given away. What a
// block holds is known here until the caller says that it is about to be overwritten, so that it
// can be copied to the host before. Nothing is copied here: stores are collected in jobs, which the
// caller begins and ends.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "host_rows.hpp"
#include "page_table.hpp"

namespace kvcanon {

struct PageStore {
    // NOWHERE where the bytes come from no block.
    int32_t block, row;
    uint32_t group;
};

// A page came to the host, or left it.
struct PageEvent {
    bool is_stored;
    PageKey key;
    nanobind::object prompt;
    int32_t place;
};

struct StoreCounts {
    int64_t stored = 0, failed = 0, late = 0, lost = 0, evicted = 0;
};

// Whether a block holds the page of a key.
using HoldsPage = std::function<bool(int32_t block, const PageKey& key)>;

class HashedPages {
  public:
    // Throws: BadArgument where there is no row, or more than 31 bits can number.
    HashedPages(int64_t rows, bool keeps_events);
    HashedPages(const HashedPages&) = delete;  // Its rows and blocks point to its pages.
    HashedPages& operator=(const HashedPages&) = delete;

    // The engine has so many blocks.
    void reserve_blocks(size_t blocks);

    const StoreCounts& counts() const { return counts_; }
    // Pages on the host, those of them that are held, and pages that are being copied there.
    int64_t on_host() const { return on_host_; }
    int64_t held() const { return on_host_ - rows_.evictable(); }
    int64_t storing() const { return storing_; }
    // Rows that another page may have: free ones, and those that may be evicted.
    int64_t takeable() const { return rows_.takeable(); }
    std::vector<PageKey> keys_on_host() const;

    // A page that is anywhere, or nullptr.
    HashedPage* find(const PageKey& key) { return pages_.find(key); }
    // Begin to read what calls for a key, a block or a page read first.
    void prefetch(const PageKey& key) const { pages_.prefetch(key); }
    void prefetch(int32_t block) const { __builtin_prefetch(blocks_.data() + block); }
    static void prefetch(const HashedPage* page) { __builtin_prefetch(page); }
    // The page that a block holds, or nullptr.
    HashedPage* in_block(int32_t block) const;

    // A block holds a page from now on, whose bytes are all there; it has a place in a prompt.
    // Throws: BadArgument.
    void learn(int32_t block, const PageKey& key, const nanobind::object& prompt, int32_t place);
    // A block is about to be overwritten.
    void forget(int32_t block);

    // Let a job copy a page from a block to the host; evicts the page that was used longest ago if
    // no row is free. Returns: false where all rows are held.
    bool store(HashedPage& page, int32_t block, int64_t job, bool is_late);
    // Let a job fill a row with a page from elsewhere, as from a disk; as `store` otherwise.
    // Returns: the row; NOWHERE where all rows are held, or where the page has a row.
    int32_t fetch(const PageKey& key, int64_t job, const nanobind::object& prompt, int32_t place);
    // What was collected for a job so far, or nullptr.
    const std::vector<PageStore>* stores_of(int64_t job) const;
    // A job has ended. Its pages are on the host if it moved all bytes, and if its blocks held the
    // pages all the time.
    void end_stores(int64_t job, bool has_moved, const HoldsPage& still_holds);
    // The jobs that read a block.
    const std::vector<int64_t>& readers_of(int32_t block) const;
    // The job that fills a row, or 0. Throws: BadArgument.
    int64_t filled_by(int32_t row) const;

    // Rows are held by answers and loads. `hold` and `let_go` throw: BadArgument.
    void hold(int32_t row);
    void let_go(int32_t row, bool has_moved);
    // Let nobody find the page of a row any more.
    void drop(int32_t row);
    // The device is about to lose a page that has a row: its copy there stays, and if the page was
    // used on the device since, it is the one that was used last.
    void keep(HashedPage& page);

    // Forget all pages. Copies go on, and what they fill is not found.
    void clear();

    std::vector<PageEvent> take_events();

  private:
    struct DeviceBlock {
        HashedPage* page = nullptr;
        std::vector<int64_t> readers;
    };

    DeviceBlock& block_at(int32_t block);
    void require_row(int32_t row) const;
    // Give a page a row, which a job fills from a block, or from NOWHERE; evicts for it.
    // Returns: the row; NOWHERE where all rows are held.
    int32_t take_row(HashedPage& page, int32_t block, int64_t job);
    // The page is not on the host any more, nor being copied there.
    void leave_host(HashedPage& page);
    void erase_if_nowhere(HashedPage& page);
    void tell(bool is_stored, const HashedPage& page);

    HostRows rows_;
    PageTable pages_;
    std::vector<DeviceBlock> blocks_;
    std::unordered_map<int64_t, std::vector<PageStore>> jobs_;
    const bool keeps_events_;
    std::vector<PageEvent> events_;
    StoreCounts counts_;
    int64_t on_host_ = 0, storing_ = 0;
};

}  // namespace kvcanon
