// Reads MessagePack values one after the other, and throws on bytes that are none.
//
// Only what batches of events are made of is read. Everything else can be skipped, whatever it is,
// so that a field that is added to an event later breaks no reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kvcanon {

// The bytes are no batch of events; the message says why and where.
class Malformed : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// An integer of any size that MessagePack has.
struct Whole {
    bool negative = false;
    // Two's complement.
    uint64_t bits = 0;
};

class Reader {
  public:
    enum class Type { NIL, BOOLEAN, WHOLE, REAL, TEXT, BYTES, ARRAY, MAP, EXTENSION };

    Reader(const uint8_t* begin, size_t size) : begin_(begin), at_(begin), end_(begin + size) {}

    bool at_end() const { return at_ == end_; }
    const uint8_t* position() const { return at_; }
    Type type() const;
    bool take_nil();
    // How many values follow; no more than there are bytes.
    size_t array(const char* what);
    // How many pairs of values follow.
    size_t map(const char* what);
    Whole whole(const char* what);
    double number(const char* what);
    std::string_view text(const char* what);
    // Text or bytes.
    std::string_view bytes(const char* what);
    void skip();

    [[noreturn]] void fail(const std::string& problem) const;

  private:
    uint8_t tag() const {
        if (at_ == end_) fail("ends in the middle");
        return *at_;
    }
    uint64_t big_endian(size_t bytes);
    std::string_view run(size_t bytes);
    size_t counted(size_t count, size_t bytes_each) const;

    const uint8_t* begin_;
    const uint8_t* at_;
    const uint8_t* end_;
};

}  // namespace kvcanon
