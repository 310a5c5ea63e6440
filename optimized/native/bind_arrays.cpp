#include "bind_arrays.hpp"

#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "errors.hpp"
#include "wide_loops.hpp"

namespace nb = nanobind;

namespace kvcanon {

namespace {

constexpr uint64_t TOKEN_SPAN = uint64_t{1} << 32;

constexpr const char* TOKEN_TYPES = "int32, uint32 or int64";
constexpr const char* SLOT_TYPES = "int32 or int64";

bool is_a(const ArrayIn& array, nb::dlpack::dtype_code code, int bits) {
    const nb::dlpack::dtype type = array.dtype();
    return type.code == static_cast<uint8_t>(code) && type.bits == bits && type.lanes == 1;
}

std::string words_of(nb::handle object) { return nb::str(object).c_str(); }

// Describe the object that was given instead of an array of the right kind.
std::string description(nb::handle given) {
    std::string words = words_of(given.type().attr("__name__"));
    if (nb::hasattr(given, "dtype") && nb::hasattr(given, "shape")) {
        const nb::tuple shape{nb::list(given.attr("shape"))};
        words += " of " + words_of(given.attr("dtype")) + " with shape " + words_of(shape);
    }
    if (nb::hasattr(given, "device")) words += " on " + words_of(given.attr("device"));
    return words;
}

[[noreturn]] void refuse_array(nb::handle given, const char* name, const char* types,
                               const char* more = "") {
    throw BadArgument(name, std::string("must be a one-dimensional contiguous CPU array of ") +
                                types + "; got " + description(given) + more);
}

// The given object as an array of any type. Throws: BadArgument.
ArrayIn array_from(nb::handle given, const char* name, const char* types) {
    ArrayIn array;
    const bool is_array = nb::try_cast(given, array, false);
    if (!is_array || array.ndim() != 1 || array.device_type() != nb::device::cpu::value) {
        refuse_array(given, name, types);
    }
    if (array.size() > 1 && array.stride(0) != 1) refuse_array(given, name, types, ", with gaps");
    // An empty array may have any address.
    if (array.size() != 0 && reinterpret_cast<uintptr_t>(array.data()) % array.itemsize() != 0) {
        refuse_array(given, name, types, ", not aligned in memory");
    }
    return array;
}

[[noreturn]] void refuse_token() {
    throw BadArgument("tokens", "must be integers in 0 .. 4294967295");
}

// Whether some number is negative. No branch in the loop, so that it becomes vector code.
template <typename Number>
bool any_negative(const Number* numbers, size_t count) {
    Number all = 0;
    for (size_t i = 0; i < count; ++i) all |= numbers[i];
    return all < 0;
}

const uint32_t* narrowed(const int64_t* tokens, size_t count, std::vector<uint32_t>& scratch) {
    scratch.resize(count);
    const uint64_t all = narrow(tokens, static_cast<int64_t>(count), scratch.data());
    if (all >= TOKEN_SPAN) refuse_token();
    return scratch.data();
}

Runs slots_from(nb::handle given, Component component, Medium medium) {
    if (given.is_none()) return {};
    const char* name = name_of(component);
    const ArrayIn slots = array_from(given, name, SLOT_TYPES);
    if (slots.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
        throw BadArgument(name, "has more slots than a pool can have");
    }
    if (is_a(slots, nb::dlpack::dtype_code::Int, 32)) {
        return runs_of(static_cast<const int32_t*>(slots.data()), slots.size());
    }
    if (!is_a(slots, nb::dlpack::dtype_code::Int, 64)) refuse_array(given, name, SLOT_TYPES);
    const auto* numbers = static_cast<const int64_t*>(slots.data());
    std::vector<Slot> narrow(slots.size());
    for (size_t i = 0; i < narrow.size(); ++i) {
        narrow[i] = static_cast<Slot>(numbers[i]);
        if (narrow[i] != numbers[i]) throw SlotNotHeld(pool_name(component, medium), numbers[i]);
    }
    return runs_of(narrow.data(), narrow.size());
}

}  // namespace

namespace {

uint32_t namespace_of(const State& state, int64_t number) {
    const std::optional<uint32_t> found = state.namespaces->index_of(number);
    if (!found) {
        throw BadArgument("namespace", "is " + std::to_string(number) +
                                           ", which is no number of a namespace, or of one that "
                                           "was forgotten; get one from `namespace`");
    }
    state.namespaces->use(*found);
    return *found;
}

// The first `count` tokens as 32-bit words, in the array itself or in `scratch`.
const uint32_t* words_from(const TokensIn& tokens, size_t count, std::vector<uint32_t>& scratch) {
    switch (tokens.type) {
        case TokensIn::Type::UINT32: return static_cast<const uint32_t*>(tokens.data);
        case TokensIn::Type::INT32: {
            const auto* numbers = static_cast<const int32_t*>(tokens.data);
            if (any_negative(numbers, count)) refuse_token();
            return reinterpret_cast<const uint32_t*>(numbers);
        }
        case TokensIn::Type::INT64: break;
    }
    return narrowed(static_cast<const int64_t*>(tokens.data), count, scratch);
}

int32_t whole_pages(size_t words, const Config& config) {
    const size_t pages = words / static_cast<size_t>(config.page_words);
    if (pages > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
        throw BadArgument("tokens", "are more pages than a cache can have");
    }
    return static_cast<int32_t>(pages);
}

}  // namespace

// Asking an `array` for its buffer takes a tenth of the time that any array takes.
bool TokensIn::is_standard_array(nb::handle given) {
    // Never given back: the interpreter may end before the module.
    static const nb::handle standard =
        nb::object(nb::module_::import_("array").attr("array")).release();
    if (!given.type().is(standard)) return false;
    if (PyObject_GetBuffer(given.ptr(), &buffer_, PyBUF_FORMAT) != 0) nb::raise_python_error();
    const char code = buffer_.format[0];
    if (code == 'q' || (code == 'l' && buffer_.itemsize == 8)) {
        type = Type::INT64;
    } else if (code == 'i' && buffer_.itemsize == 4) {
        type = Type::INT32;
    } else if (code == 'I' && buffer_.itemsize == 4) {
        type = Type::UINT32;
    } else {
        PyBuffer_Release(&buffer_);
        return false;
    }
    data = buffer_.buf;
    size = static_cast<size_t>(buffer_.len / buffer_.itemsize);
    return true;
}

TokensIn::TokensIn(nb::handle given) {
    if (is_standard_array(given)) return;
    array_ = array_from(given, "tokens", TOKEN_TYPES);
    if (is_a(array_, nb::dlpack::dtype_code::UInt, 32)) {
        type = Type::UINT32;
    } else if (is_a(array_, nb::dlpack::dtype_code::Int, 32)) {
        type = Type::INT32;
    } else if (is_a(array_, nb::dlpack::dtype_code::Int, 64)) {
        type = Type::INT64;
    } else {
        refuse_array(given, "tokens", TOKEN_TYPES);
    }
    data = array_.data();
    size = array_.size();
}

TokensIn::TokensIn(TokensIn&& other) noexcept
    : type(other.type),
      data(other.data),
      size(other.size),
      buffer_(std::exchange(other.buffer_, Py_buffer{})),
      array_(std::move(other.array_)) {}

TokensIn::~TokensIn() {
    if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

SlotsIn::SlotsIn(nb::handle given) {
    if (PyObject_GetBuffer(given.ptr(), &buffer_, PyBUF_ND | PyBUF_FORMAT) != 0) {
        PyErr_Clear();
        refuse_array(given, "slots", SLOT_TYPES);
    }
    const std::string_view format = buffer_.format;
    const bool is_signed = format == "i" || format == "l" || format == "q";
    is_wide = buffer_.itemsize == 8;
    if (buffer_.ndim != 1 || !is_signed || (!is_wide && buffer_.itemsize != 4) ||
        reinterpret_cast<uintptr_t>(buffer_.buf) % static_cast<size_t>(buffer_.itemsize) != 0) {
        PyBuffer_Release(&buffer_);
        refuse_array(given, "slots", SLOT_TYPES);
    }
    data = buffer_.buf;
    size = static_cast<size_t>(buffer_.len / buffer_.itemsize);
}

SlotsIn::~SlotsIn() { PyBuffer_Release(&buffer_); }

GivenKey key_of(const State& state, nb::handle given, int64_t namespace_number,
                std::vector<uint32_t>& scratch) {
    const uint32_t namespace_id = namespace_of(state, namespace_number);
    TokensIn tokens(given);
    const int32_t pages = whole_pages(tokens.size, state.config);
    const size_t count = static_cast<size_t>(pages) * static_cast<size_t>(state.config.page_words);
    const Key key{words_from(tokens, count, scratch), pages, namespace_id};
    return {std::move(tokens), key};
}

GivenKey bigrams_of(const State& state, nb::handle given, int64_t namespace_number,
                    std::vector<uint32_t>& scratch) {
    const uint32_t namespace_id = namespace_of(state, namespace_number);
    TokensIn tokens(given);
    const size_t units = tokens.size == 0 ? 0 : tokens.size - 1;
    const int32_t pages = whole_pages(2 * units, state.config);
    const size_t count = static_cast<size_t>(pages) * static_cast<size_t>(state.config.page_size);
    if (count == 0) return {std::move(tokens), Key{nullptr, 0, namespace_id}};
    std::vector<uint32_t> narrow;
    const uint32_t* words = words_from(tokens, count + 1, narrow);
    scratch.resize(2 * count);
    for (size_t i = 0; i < count; ++i) {
        scratch[2 * i] = words[i];
        scratch[2 * i + 1] = words[i + 1];
    }
    return {std::move(tokens), Key{scratch.data(), pages, namespace_id}};
}

SlotLists slots_of(nb::handle full, nb::handle swa, nb::handle mamba, Medium medium) {
    SlotLists slots;
    slots[FULL] = slots_from(full, FULL, medium);
    slots[SWA] = slots_from(swa, SWA, medium);
    slots[MAMBA] = slots_from(mamba, MAMBA, medium);
    return slots;
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
