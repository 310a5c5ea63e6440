#include "event_lists.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "msgpack_writer.hpp"

namespace kvcanon {

namespace {

// Numbers as MessagePack in memory that has room for them; each returns where the next one goes. No
// object has that place: the compiler would write it back for every byte.

uint8_t* put_big_endian(uint8_t* at, uint32_t value) {
    // In one store: four of a byte take half as long again.
    if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) value = __builtin_bswap32(value);
    std::memcpy(at, &value, sizeof value);
    return at + sizeof value;
}

uint8_t* put_list(uint8_t* at, size_t count) {
    if (count <= 15) {
        *at = static_cast<uint8_t>(0x90 | count);
        return at + 1;
    }
    if (count <= 0xffff) {
        *at = 0xdc;
        put_big_endian(at + 1, static_cast<uint32_t>(count) << 16);
        return at + 3;
    }
    *at = 0xdd;
    return put_big_endian(at + 1, static_cast<uint32_t>(count));
}

// Whether a token has two bytes or four cannot be predicted, so that there is no branch for it.
uint8_t* put_whole(uint8_t* at, uint32_t value) {
    if (value <= 0xff) {
        if (value >= 0x80) *at++ = 0xcc;
        *at = static_cast<uint8_t>(value);
        return at + 1;
    }
    const uint32_t is_wide = value > 0xffff ? 1 : 0;
    *at = static_cast<uint8_t>(0xcd + is_wide);
    put_big_endian(at + 1, value << (16 - 16 * is_wide));
    return at + 3 + 2 * size_t{is_wide};
}

// Most hashes need all 64 bits, and have either sign.
uint8_t* put_hash(uint8_t* at, int64_t value) {
    constexpr int64_t MOST = 0xffffffff;
    if (INT32_MIN <= value && value <= MOST) {
        std::string small;
        Writer(small).whole_signed(value);
        return std::copy(small.begin(), small.end(), at);
    }
    const auto bits = static_cast<uint64_t>(value);
    *at = static_cast<uint8_t>(0xcf + 4 * (bits >> 63));
    at = put_big_endian(at + 1, static_cast<uint32_t>(bits >> 32));
    return put_big_endian(at, static_cast<uint32_t>(bits));
}

// Of the head of a list, and what is written past its last number.
constexpr size_t LIST_BYTES = 5 + 8;

}  // namespace

uint64_t eight_bytes(const uint8_t* bytes) {
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | bytes[i];
    return value;
}

int64_t sent_hash(const uint8_t* hash) { return static_cast<int64_t>(eight_bytes(hash)); }

size_t most_hash_bytes(size_t count) {
    constexpr size_t BYTES = 9;
    return count * BYTES + LIST_BYTES;
}

uint8_t* put_hashes(uint8_t* at, const uint8_t* first, size_t count, ptrdiff_t step) {
    at = put_list(at, count);
    for (; count != 0; --count, first += step) at = put_hash(at, sent_hash(first));
    return at;
}

size_t most_token_bytes(size_t units, size_t unit_words) {
    constexpr size_t BYTES = 5;
    return units * (unit_words * BYTES + 1) + LIST_BYTES;
}

uint8_t* put_tokens(uint8_t* at, const uint32_t* word, size_t units, size_t unit_words) {
    at = put_list(at, units);
    if (unit_words == 1) {
        for (const uint32_t* end = word + units; word != end; ++word) at = put_whole(at, *word);
        return at;
    }
    for (size_t unit = 0; unit < units; ++unit) {
        at = put_list(at, 2);
        at = put_whole(at, *word++);
        at = put_whole(at, *word++);
    }
    return at;
}

}  // namespace kvcanon
