#include "spaces.hpp"

#include <utility>

namespace kvcanon {

namespace {

void append(std::string& name, const Text& text) {
    name += text.is_there ? "+" + std::to_string(text.value.size()) + ":" : "-";
    name.append(text.value);
}

Text keep(std::string& place, const Text& text) {
    place.assign(text.value);
    return text;
}

}  // namespace

Spaces::Spaces(FindSeeds find_seeds) : find_seeds_(std::move(find_seeds)), spaces_(1) {}

uint32_t Spaces::number_of(const WireEvent& event, std::string_view extra) {
    if (!event.salt.is_there && !event.lora.is_there && !event.extra_key.is_there &&
        extra.empty()) {
        return 0;
    }
    std::string name;
    append(name, event.salt);
    append(name, event.lora);
    append(name, event.extra_key);
    name.append(extra);
    const auto found = numbers_.find(name);
    if (found != numbers_.end()) return found->second;
    Space space;
    space.salt = keep(space.kept[0], event.salt);
    space.lora = keep(space.kept[1], event.lora);
    space.extra_key = keep(space.kept[2], event.extra_key);
    space.extra = extra;
    space.name = name;
    space.seeds = find_seeds_(space);
    if (unused_.empty()) {
        unused_.push_back(static_cast<uint32_t>(spaces_.size()));
        spaces_.emplace_back();
    }
    const uint32_t number = unused_.back();
    unused_.pop_back();
    Space& kept = spaces_[number];
    kept = std::move(space);
    // The texts moved, and short ones with their bytes.
    kept.salt.value = kept.kept[0];
    kept.lora.value = kept.kept[1];
    kept.extra_key.value = kept.kept[2];
    numbers_.emplace(std::move(name), number);
    return number;
}

std::vector<Seed> Spaces::seeds_of_prompts(const Space& space) const {
    const auto is_blank = [](const Text& text) { return text.is_there && text.value.empty(); };
    if (!space.extra_key.is_there && !is_blank(space.salt) && !is_blank(space.lora)) {
        return space.seeds;
    }
    Space known;
    known.extra = space.extra;
    if (!space.salt.value.empty()) known.salt = space.salt;
    if (!space.lora.value.empty()) known.lora = space.lora;
    return find_seeds_(known);
}

void Spaces::release(uint32_t number) {
    if (--spaces_[number].blocks != 0) return;
    --used_;
    tidy(number);
}

void Spaces::tidy(uint32_t number) {
    if (number == 0 || spaces_[number].blocks != 0 || spaces_[number].name.empty()) return;
    numbers_.erase(spaces_[number].name);
    spaces_[number] = Space();
    unused_.push_back(number);
}

}  // namespace kvcanon
