// Signatures and docstrings of `HashedPages`, as in docstrings.hpp.
#pragma once

#include "docstrings.hpp"

namespace kvcanon::docs {

constexpr const char* HASHED_PAGES =
    R"(Where the bytes of each page are: in the engine's blocks, and in the rows of a host tier.

The engine names a page by the hash of its block; a key is that hash and four bytes of its
group, the highest first. Calls take the hashes of a prompt and a range of them, so that one
call serves a run of pages. Copies are collected in jobs, which the caller numbers, begins and
ends. A row is held while a copy fills or reads it, and while an answer promised its page.

`rows` is the room of the host; `events` says whether what comes and leaves is kept for
`take_events`.)";

constexpr Docstring HASHED_PAGES_INIT{
    "def __init__(self, rows: int, *, events: bool = False) -> None",
    R"(Make an empty host.

Raises:
    BadArgument: there is no row, or more than 31 bits can number.)"};

constexpr Docstring HASHED_PAGES_WATCH{
    "def watch(self, blocks: Sequence[object], null_block: int) -> None",
    R"(Take the engine's list of blocks, whose `block_hash` says what it finds in each.

`null_block` stands for blocks of which nothing is read.)"};

constexpr Docstring HASHED_PAGES_LEADING{
    "def leading(self, hashes: list[bytes], group: int, first: int, end: int, *, or_device: bool) "
    "-> int",
    R"(Return where a run of pages from `first` on ends that the host has.

With `or_device` pages count as well that the engine finds on the device.)"};

constexpr Docstring HASHED_PAGES_THERE{
    "def there(self, hashes: list[bytes], group: int, first: int, end: int, *, or_device: bool) -> "
    "list[bool]",
    R"(Return of each page whether the host has it, or with `or_device` the device.)"};

constexpr Docstring HASHED_PAGES_HOLD{
    "def hold(self, hashes: list[bytes], group: int, first: int, end: int) -> list[int]",
    R"(Hold the rows of those pages that are on the host, and return them.)"};

constexpr Docstring HASHED_PAGES_HOLD_ALL{
    "def hold_all(self, hashes: list[bytes], group: int, first: int, end: int, job: int) -> "
    "list[int] | None",
    R"(Hold the row of each page, and return them.

A page that is on the device alone gets a row, which `job` fills. Returns None, and holds
nothing, where a page is in neither place or gets no row.)"};

constexpr Docstring HASHED_PAGES_FETCH{
    "def fetch(self, hashes: list[bytes], group: int, places: Sequence[int], job: int, "
    "prompt: object = None) -> list[int | None]",
    R"(Give pages that come from elsewhere a row each, which `job` fills, and return the rows.

None for a page that has a row, or where all rows are held. `prompt` is what `take_events` gives
back for these pages.)"};

constexpr Docstring HASHED_PAGES_LET_GO{
    "def let_go(self, rows: Sequence[int], *, moved: bool = False) -> None",
    R"(Take back one hold of each row, the last row first, since the last page leaves first.

With `moved` their pages leave the host once nothing holds them.

Raises:
    BadArgument: a row is not held. Those behind it are let go.)"};

constexpr Docstring HASHED_PAGES_DROP{
    "def drop(self, rows: Sequence[int]) -> None",
    R"(Let nobody find the pages of these rows any more, nor what is being copied there.)"};

constexpr Docstring HASHED_PAGES_LEARN{
    "def learn(self, blocks: Sequence[int], hashes: list[bytes], group: int, first: int, end: int, "
    "prompt: object = None, *, loaded: bool = False) -> list[int]",
    R"(Note that the blocks of a prompt hold its pages, and return them.

Those alone that the engine finds under these hashes, or with `loaded` all, which the engine
does not know yet. `prompt` is what `take_events` gives back for these pages.)"};

constexpr Docstring HASHED_PAGES_GIVE{
    "def give(self, blocks: Sequence[int], late_job: int | None) -> set[int]",
    R"(Note that the engine gave blocks to a request, and forget what they held.

Not of blocks in which the engine finds it still. `late_job` copies what is in no row, before
the blocks are overwritten. Returns the jobs that read any of the blocks.)"};

constexpr Docstring HASHED_PAGES_STORE{
    "def store(self, blocks: Sequence[int], job: int) -> None",
    R"(Let a job copy what the engine finds in these blocks; what has a row is used instead.)"};

constexpr Docstring HASHED_PAGES_STORE_AHEAD{
    "def store_ahead(self, head: object, count: int, job: int) -> None",
    R"(Let a job copy what the engine evicts next; what has a row is used instead.

`head` stands before the first free block, each of which has the `next_free_block`. So many
are looked at; one that stands for the end of the queue is not.)"};

constexpr Docstring HASHED_PAGES_COPIES{
    "def copies(self, job: int) -> tuple[array[int], array[int], array[int]] | None",
    R"(Return the blocks, rows and groups that a job copies; None for a job without any.)"};

constexpr Docstring HASHED_PAGES_END_STORES{
    "def end_stores(self, job: int, *, moved: bool, check_blocks: bool = False) -> None",
    R"(Let the pages of a job be found, if it moved all its bytes.

With `check_blocks` those alone that the engine finds in their blocks still. A job that is not
known has ended before.)"};

constexpr Docstring HASHED_PAGES_JOBS_BEFORE{
    "def jobs_before(self, blocks: Sequence[int], rows: Sequence[int]) -> set[int]",
    R"(Return the jobs that must end before a load: those that fill its rows or read its blocks.)"};

constexpr Docstring HASHED_PAGES_CLEAR{
    "def clear(self) -> None",
    R"(Forget all pages. Rows that are held come free with their last hold.)"};

constexpr Docstring HASHED_PAGES_TAKE_EVENTS{
    "def take_events(self) -> list[tuple[bool, bytes, int, object, int]]",
    R"(Return what came to the host and left it since the last call, in order.

Of each: whether it came, its hash and group, its prompt as `learn` was given it, and its place
there.)"};

constexpr Docstring HASHED_PAGES_KEYS{"def keys(self) -> set[bytes]",
                                      R"(Return the keys of the pages on the host.)"};

constexpr Docstring HASHED_PAGES_COUNTS{
    "def counts(self) -> dict[str, int]",
    R"(Return what was counted so far: pages that were stored, whose copy failed, that were stored
late, that got no row, and that were evicted.)"};

}  // namespace kvcanon::docs
