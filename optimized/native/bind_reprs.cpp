#include "bind_reprs.hpp"

#include <algorithm>

#include "cache_core.hpp"

namespace kvcanon {

namespace {

// As many numbers are shown; of more only the first and the last few.
constexpr size_t MOST_SHOWN = 8;
constexpr size_t SHOWN_AT_AN_END = 3;

std::string joined(const std::vector<int64_t>& numbers, size_t from, size_t to,
                   const char* separator) {
    std::string text;
    for (size_t at = from; at < to; ++at) {
        text += (at == from ? "" : separator) + std::to_string(numbers[at]);
    }
    return text;
}

// All numbers, or the first and the last of many.
std::string folded(const std::vector<int64_t>& numbers, const char* separator) {
    const size_t count = numbers.size();
    if (count <= MOST_SHOWN) return joined(numbers, 0, count, separator);
    return joined(numbers, 0, SHOWN_AT_AN_END, separator) + separator + "..." + separator +
           joined(numbers, count - SHOWN_AT_AN_END, count, separator);
}

// How many numbers there are, where not all are shown.
std::string count_if_folded(size_t count) {
    return count <= MOST_SHOWN ? "" : " of " + std::to_string(count);
}

std::string count_of(size_t count, const char* noun) {
    return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

ReprText& ReprText::add(const char* field, const std::string& value) {
    text_ += (empty_ ? "" : ", ") + std::string(field) + "=" + value;
    empty_ = false;
    return *this;
}

ReprText& ReprText::add_slots(const char* field, const Runs& slots) {
    if (!slots) return *this;
    std::vector<int64_t> numbers;
    numbers.reserve(static_cast<size_t>(slots.slots()));
    for (const Run& run : slots) {
        for (int32_t at = 0; at < run.size; ++at) numbers.push_back(int64_t{run.begin} + at);
    }
    return add(field, "[" + folded(numbers, " ") + "]" + count_if_folded(numbers.size()));
}

ReprText& ReprText::add_ids(const char* field, const std::vector<uint64_t>& ids) {
    if (ids.empty()) return *this;
    const std::string text = folded({ids.begin(), ids.end()}, ", ");
    return add(field, "(" + text + (ids.size() == 1 ? ",)" : ")") + count_if_folded(ids.size()));
}

std::string repr_of(const char* class_name, const CacheCore& core) {
    const State& state = core.state;
    std::string text = std::string("<") + class_name + ": page_size " +
                       std::to_string(state.config.page_size) + ", free slots";
    const char* separator = " ";
    for (const Medium medium : {GPU, CPU}) {
        for (const Component component : ALL_COMPONENTS) {
            const int64_t capacity = state.config.capacity(component, medium);
            if (capacity == 0) continue;
            text += std::exchange(separator, ", ") + std::string(medium == GPU ? "" : "host ") +
                    name_of(component) + " " + std::to_string(state.free_slots(component, medium)) +
                    " of " + std::to_string(capacity);
        }
    }
    // A transfer has a hold of its own.
    const size_t transfers = state.transfers.size();
    text += "; " + count_of(state.node_count, "node") + ", " +
            count_of(state.holds.size() - std::min(transfers, state.holds.size()), "receipt") +
            ", " + count_of(transfers, "transfer");
    if (core.closed) text += "; closed";
    if (core.detached) text += "; detached";
    if (!core.gate.broken.empty()) text += "; refuses calls: " + core.gate.broken;
    return text + ">";
}

}  // namespace kvcanon
