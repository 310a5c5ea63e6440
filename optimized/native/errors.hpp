// Errors: each becomes the exception of the same name in `kvcanon.spec.errors`.
//
// A refused call leaves the state exactly as it was, so everything is checked before anything is
// changed.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace kvcanon {

struct CacheError : std::exception {};

struct BadArgument : CacheError {
    std::string argument, problem;
    BadArgument(std::string which, std::string what)
        : argument(std::move(which)), problem(std::move(what)) {}
};

struct OutOfSlots : CacheError {
    std::string pool;
    int64_t asked, free;
    OutOfSlots(std::string which, int64_t asked_slots, int64_t free_slots)
        : pool(std::move(which)), asked(asked_slots), free(free_slots) {}
};

struct PrefixNotCached : CacheError {
    int64_t asked, cached;
    PrefixNotCached(int64_t asked_pages, int64_t cached_pages)
        : asked(asked_pages), cached(cached_pages) {}
};

struct ReceiptSpent : CacheError {
    uint64_t receipt;
    explicit ReceiptSpent(uint64_t receipt_id) : receipt(receipt_id) {}
};

struct SlotNotHeld : CacheError {
    std::string pool;
    int64_t slot;
    SlotNotHeld(std::string which, int64_t number) : pool(std::move(which)), slot(number) {}
};

struct TransferPending : CacheError {
    uint64_t transfer;
    explicit TransferPending(uint64_t transfer_id) : transfer(transfer_id) {}
};

struct CacheBusy : CacheError {
    int64_t receipts;
    explicit CacheBusy(int64_t open_receipts) : receipts(open_receipts) {}
};

// Not a refusal: the engine or this program has a bug.
struct SpecViolation : std::exception {
    std::string words;
    explicit SpecViolation(std::string what) : words(std::move(what)) {}
    const char* what() const noexcept override { return words.c_str(); }
};

// Not a refusal either: no call is possible before the caller does what the words say.
struct Unusable : std::exception {
    std::string words;
    explicit Unusable(std::string what) : words(std::move(what)) {}
    const char* what() const noexcept override { return words.c_str(); }
};

// The engine cannot go on, and says why.
struct EngineDied : std::exception {
    std::string words;
    explicit EngineDied(std::string what) : words(std::move(what)) {}
    const char* what() const noexcept override { return words.c_str(); }
};

// Memory ran out. The words need no memory of their own.
struct OutOfMemory : std::exception {
    const char* words;
    explicit OutOfMemory(const char* literal) : words(literal) {}
    const char* what() const noexcept override { return words; }
};

}  // namespace kvcanon
