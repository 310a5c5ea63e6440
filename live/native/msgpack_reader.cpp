#include "msgpack_reader.hpp"

#include <cstring>

namespace kvcanon {

namespace {

// Deeper nesting is no event, and would cost stack.
constexpr size_t MOST_NESTED = 64;

}  // namespace

void Reader::fail(const std::string& problem) const {
    throw Malformed(problem + " (byte " + std::to_string(at_ - begin_) + ")");
}

Reader::Type Reader::type() const {
    const uint8_t first = tag();
    if (first < 0x80 || first >= 0xe0) return Type::WHOLE;
    if (first < 0x90) return Type::MAP;
    if (first < 0xa0) return Type::ARRAY;
    if (first < 0xc0) return Type::TEXT;
    switch (first) {
        case 0xc0: return Type::NIL;
        case 0xc2:
        case 0xc3: return Type::BOOLEAN;
        case 0xc4:
        case 0xc5:
        case 0xc6: return Type::BYTES;
        case 0xca:
        case 0xcb: return Type::REAL;
        case 0xd9:
        case 0xda:
        case 0xdb: return Type::TEXT;
        case 0xdc:
        case 0xdd: return Type::ARRAY;
        case 0xde:
        case 0xdf: return Type::MAP;
        case 0xc1: fail("has the byte c1, which MessagePack does not use");
        default: break;
    }
    if (first >= 0xcc && first <= 0xd3) return Type::WHOLE;
    return Type::EXTENSION;
}

uint64_t Reader::big_endian(size_t bytes) {
    if (static_cast<size_t>(end_ - at_) < bytes) fail("ends in the middle");
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value = value << 8 | at_[i];
    at_ += bytes;
    return value;
}

std::string_view Reader::run(size_t bytes) {
    if (static_cast<size_t>(end_ - at_) < bytes) fail("ends in the middle");
    const std::string_view found(reinterpret_cast<const char*>(at_), bytes);
    at_ += bytes;
    return found;
}

size_t Reader::counted(size_t count, size_t bytes_each) const {
    if (count > static_cast<size_t>(end_ - at_) / bytes_each) fail("ends in the middle");
    return count;
}

bool Reader::take_nil() {
    if (tag() != 0xc0) return false;
    ++at_;
    return true;
}

size_t Reader::array(const char* what) {
    if (type() != Type::ARRAY) fail(std::string(what) + " is no array");
    const uint8_t first = *at_++;
    if (first < 0xa0) return counted(first & 0x0f, 1);
    return counted(big_endian(first == 0xdc ? 2 : 4), 1);
}

size_t Reader::map(const char* what) {
    if (type() != Type::MAP) fail(std::string(what) + " is no map");
    const uint8_t first = *at_++;
    if (first < 0x90) return counted(first & 0x0f, 2);
    return counted(big_endian(first == 0xde ? 2 : 4), 2);
}

Whole Reader::whole(const char* what) {
    const uint8_t first = tag();
    if (first < 0x80) {
        ++at_;
        return {false, first};
    }
    if (first >= 0xe0) {
        ++at_;
        return {true, static_cast<uint64_t>(static_cast<int64_t>(static_cast<int8_t>(first)))};
    }
    if (first < 0xcc || first > 0xd3) fail(std::string(what) + " is no integer");
    ++at_;
    if (first <= 0xcf) return {false, big_endian(size_t{1} << (first - 0xcc))};
    const size_t bytes = size_t{1} << (first - 0xd0);
    const unsigned unused = 64 - 8 * static_cast<unsigned>(bytes);
    const uint64_t shifted = big_endian(bytes) << unused;
    const auto value = static_cast<int64_t>(shifted) >> unused;
    return {value < 0, static_cast<uint64_t>(value)};
}

double Reader::number(const char* what) {
    if (type() == Type::WHOLE) {
        const Whole value = whole(what);
        return value.negative ? static_cast<double>(static_cast<int64_t>(value.bits))
                              : static_cast<double>(value.bits);
    }
    if (type() != Type::REAL) fail(std::string(what) + " is no number");
    if (*at_++ == 0xca) {
        const auto bits = static_cast<uint32_t>(big_endian(4));
        float value = 0;
        std::memcpy(&value, &bits, sizeof value);
        return static_cast<double>(value);
    }
    const uint64_t bits = big_endian(8);
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

std::string_view Reader::text(const char* what) {
    if (type() != Type::TEXT) fail(std::string(what) + " is no text");
    return bytes(what);
}

std::string_view Reader::bytes(const char* what) {
    const Type found = type();
    if (found != Type::TEXT && found != Type::BYTES) fail(std::string(what) + " is no text");
    const uint8_t first = *at_++;
    if (first < 0xc0) return run(first & 0x1f);
    const unsigned power = found == Type::TEXT ? first - 0xd9U : first - 0xc4U;
    return run(big_endian(size_t{1} << power));
}

void Reader::skip() {
    // What is left to skip at each depth.
    size_t left[MOST_NESTED] = {1};
    size_t depth = 0;
    while (true) {
        while (left[depth] == 0) {
            if (depth-- == 0) return;
        }
        --left[depth];
        size_t inside = 0;
        switch (type()) {
            case Type::NIL:
            case Type::BOOLEAN: ++at_; break;
            case Type::WHOLE: whole("a value"); break;
            case Type::REAL: number("a value"); break;
            case Type::TEXT:
            case Type::BYTES: bytes("a value"); break;
            case Type::ARRAY: inside = array("a value"); break;
            case Type::MAP: inside = 2 * map("a value"); break;
            case Type::EXTENSION: {
                const uint8_t first = *at_++;
                // d4 to d8 have 1 to 16 bytes; c7 to c9 say how many. The type comes before them.
                run(1 + (first >= 0xd4 ? size_t{1} << (first - 0xd4)
                                       : big_endian(size_t{1} << (first - 0xc7))));
                break;
            }
        }
        if (inside != 0) {
            if (++depth == MOST_NESTED) fail("is nested too deeply");
            left[depth] = inside;
        }
    }
}

}  // namespace kvcanon
