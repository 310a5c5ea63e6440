#include "bind_arrays.hpp"

#include <limits>
#include <memory>

#include "errors.hpp"

namespace nb = nanobind;

namespace kvcanon {

namespace {

constexpr uint64_t TOKEN_SPAN = uint64_t{1} << 32;

bool is_a(const ArrayIn& array, nb::dlpack::dtype_code code, int bits) {
    const nb::dlpack::dtype type = array.dtype();
    return type.code == static_cast<uint8_t>(code) && type.bits == bits && type.lanes == 1;
}

[[noreturn]] void refuse_token() {
    throw BadArgument("tokens", "must be integers in 0 .. 4294967295");
}

// Whether some number is negative; without a branch a number, so that it is vector code.
template <typename Number>
bool any_negative(const Number* numbers, size_t count) {
    Number all = 0;
    for (size_t i = 0; i < count; ++i) all |= numbers[i];
    return all < 0;
}

const uint32_t* narrowed(const int64_t* tokens, size_t count, std::vector<uint32_t>& scratch) {
    scratch.resize(count);
    uint64_t all = 0;
    for (size_t i = 0; i < count; ++i) {
        all |= static_cast<uint64_t>(tokens[i]);
        scratch[i] = static_cast<uint32_t>(tokens[i]);
    }
    if (all >= TOKEN_SPAN) refuse_token();
    return scratch.data();
}

}  // namespace

Key key_of(const State& state, const ArrayIn& tokens, int64_t space,
           std::vector<uint32_t>& scratch) {
    if (space < 0 || space >= static_cast<int64_t>(state.spaces.size())) {
        throw BadArgument("namespace", "is " + std::to_string(space) +
                                           ", a number that `namespace` did not give out");
    }
    const size_t pages = tokens.size() / static_cast<size_t>(state.config.page_words);
    if (pages > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
        throw BadArgument("tokens", "are more pages than a cache can have");
    }
    const size_t count = pages * static_cast<size_t>(state.config.page_words);
    const uint32_t* words = nullptr;
    if (is_a(tokens, nb::dlpack::dtype_code::UInt, 32)) {
        words = static_cast<const uint32_t*>(tokens.data());
    } else if (is_a(tokens, nb::dlpack::dtype_code::Int, 32)) {
        const auto* numbers = static_cast<const int32_t*>(tokens.data());
        if (any_negative(numbers, count)) refuse_token();
        words = reinterpret_cast<const uint32_t*>(numbers);
    } else if (is_a(tokens, nb::dlpack::dtype_code::Int, 64)) {
        words = narrowed(static_cast<const int64_t*>(tokens.data()), count, scratch);
    } else {
        throw BadArgument("tokens", "must be an array of int32, uint32 or int64");
    }
    return {words, static_cast<int32_t>(pages), static_cast<uint32_t>(space)};
}

Runs slots_of(const ArrayIn& slots, const char* name) {
    if (slots.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
        throw BadArgument(name, "are more than a pool can have");
    }
    if (is_a(slots, nb::dlpack::dtype_code::Int, 32)) {
        return runs_of(static_cast<const int32_t*>(slots.data()), slots.size());
    }
    if (!is_a(slots, nb::dlpack::dtype_code::Int, 64)) {
        throw BadArgument(name, "must be an array of int32 or int64");
    }
    const auto* numbers = static_cast<const int64_t*>(slots.data());
    std::vector<Slot> narrow(slots.size());
    for (size_t i = 0; i < narrow.size(); ++i) {
        const int64_t number = numbers[i];
        const bool fits = 0 <= number && number <= std::numeric_limits<int32_t>::max();
        // No pool has a slot -1: it is refused where ownership is looked up.
        narrow[i] = fits ? static_cast<Slot>(number) : -1;
    }
    return runs_of(narrow.data(), narrow.size());
}

SlotsOut array_of(const Runs& runs) {
    const auto count = static_cast<size_t>(runs.slots());
    std::unique_ptr<Slot[]> slots(new Slot[count]);
    expand(runs, slots.get());
    Slot* data = slots.get();
    nb::capsule owner(data, [](void* memory) noexcept { delete[] static_cast<Slot*>(memory); });
    slots.release();
    return SlotsOut(data, {count}, owner);
}

}  // namespace kvcanon
