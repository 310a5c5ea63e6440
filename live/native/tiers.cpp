#include "tiers.hpp"

#include <string_view>

namespace kvcanon {

namespace {

// Of an owner's name so much tells tiers apart.
constexpr size_t MOST_OWNER_BYTES = 64;

bool is_named(std::string_view name, std::string_view upper) {
    if (name.size() != upper.size()) return false;
    for (size_t i = 0; i < name.size(); ++i) {
        const char letter = name[i];
        const bool is_small = letter >= 'a' && letter <= 'z';
        if ((is_small ? static_cast<char>(letter - 'a' + 'A') : letter) != upper[i]) return false;
    }
    return true;
}

}  // namespace

int medium_named(const Text& name) {
    // The oldest forms have no medium, and know of the device alone.
    if (!name.is_there || is_named(name.value, "GPU")) return GPU_MEDIUM;
    if (is_named(name.value, "CPU_PINNED") || is_named(name.value, "CPU")) return HOST_MEDIUM;
    if (is_named(name.value, "DISK") || is_named(name.value, "STORAGE")) return DISK_MEDIUM;
    return is_named(name.value, "EXTERNAL") ? EXTERNAL_MEDIUM : OTHER_MEDIUM;
}

Tiers::Tiers() {
    for (size_t medium = 0; medium < WIRE_MEDIA; ++medium) {
        tiers_.push_back({static_cast<int>(medium), false, {}});
    }
}

int Tiers::number_of(int medium, const WireEvent& event) {
    const std::string_view owner = event.ownership.value.substr(0, MOST_OWNER_BYTES);
    const bool is_remote = is_named(event.locality.value, "REMOTE");
    if (owner.empty() && !is_remote) return medium;
    for (size_t number = WIRE_MEDIA; number < tiers_.size(); ++number) {
        const Tier& tier = tiers_[number];
        if (tier.medium == medium && tier.is_remote == is_remote && tier.owner == owner) {
            return static_cast<int>(number);
        }
    }
    if (tiers_.size() == MOST_TIERS) return medium;
    tiers_.push_back({medium, is_remote, std::string(owner)});
    return static_cast<int>(tiers_.size() - 1);
}

}  // namespace kvcanon
