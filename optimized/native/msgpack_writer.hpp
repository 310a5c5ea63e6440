// Writes MessagePack, each value in its shortest form, as every encoder in use does.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace kvcanon {

class Writer {
  public:
    explicit Writer(std::string& out) : out_(out) {}

    void nil() { byte(0xc0); }
    void array(size_t count) { counted(count, 0x90, 15, 0xdc); }
    void map(size_t pairs) { counted(pairs, 0x80, 15, 0xde); }
    // A map of fewer than 65,536 pairs in the form of a larger one.
    void wide_map(size_t pairs) { big_endian(0xde, pairs, 2); }
    void text(std::string_view value) {
        if (value.size() < 32) {
            byte(static_cast<uint8_t>(0xa0 | value.size()));
        } else if (value.size() <= 0xff) {
            big_endian(0xd9, value.size(), 1);
        } else if (value.size() <= 0xffff) {
            big_endian(0xda, value.size(), 2);
        } else {
            big_endian(0xdb, value.size(), 4);
        }
        out_.append(value);
    }
    void number(double value) {
        uint64_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        big_endian(0xcb, bits, 8);
    }
    void whole(uint64_t value) {
        if (value < 0x80) {
            byte(static_cast<uint8_t>(value));
        } else if (value <= 0xff) {
            big_endian(0xcc, value, 1);
        } else if (value <= 0xffff) {
            big_endian(0xcd, value, 2);
        } else if (value <= 0xffffffff) {
            big_endian(0xce, value, 4);
        } else {
            big_endian(0xcf, value, 8);
        }
    }
    void whole_signed(int64_t value) {
        const auto bits = static_cast<uint64_t>(value);
        if (value >= 0) {
            whole(bits);
        } else if (value >= -32) {
            byte(static_cast<uint8_t>(bits));
        } else if (value >= INT8_MIN) {
            big_endian(0xd0, bits, 1);
        } else if (value >= INT16_MIN) {
            big_endian(0xd1, bits, 2);
        } else if (value >= INT32_MIN) {
            big_endian(0xd2, bits, 4);
        } else {
            big_endian(0xd3, bits, 8);
        }
    }

  private:
    void byte(uint8_t value) { out_.push_back(static_cast<char>(value)); }
    // A tag and the lowest bytes of a value.
    void big_endian(uint8_t tag, uint64_t value, int bytes) {
        char written[9];
        written[0] = static_cast<char>(tag);
        for (int i = 0; i < bytes; ++i) {
            written[1 + i] = static_cast<char>(value >> (8 * (bytes - 1 - i)));
        }
        out_.append(written, static_cast<size_t>(bytes) + 1);
    }
    void counted(size_t count, uint8_t fix, size_t most, uint8_t tag) {
        if (count <= most) {
            byte(static_cast<uint8_t>(fix | count));
        } else if (count <= 0xffff) {
            big_endian(tag, count, 2);
        } else {
            big_endian(static_cast<uint8_t>(tag + 1), count, 4);
        }
    }

    std::string& out_;
};

}  // namespace kvcanon
