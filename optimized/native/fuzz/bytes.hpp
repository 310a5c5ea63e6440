// The input of a fuzzer, read as small numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvcanon::fuzz {

class Bytes {
  public:
    Bytes(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

    bool empty() const { return at_ == end_; }
    // Returns zeros after the end, so that every input is long enough.
    uint8_t next() { return empty() ? uint8_t{0} : *at_++; }
    int below(int limit) { return limit > 0 ? next() % limit : 0; }
    bool coin() { return (next() & 1) != 0; }

  private:
    const uint8_t* at_;
    const uint8_t* end_;
};

}  // namespace kvcanon::fuzz
