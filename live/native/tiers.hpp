// The tiers of a stream: a medium, and where several tiers share one, which of them it is.
//
// vLLM names a tier by its medium, by whether it is local, and by who keeps it. Each tier has a bit
// of its own in a block.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "wire_batch.hpp"

namespace kvcanon {

// GPU, host, disk, external, and media whose names are not known.
constexpr size_t WIRE_MEDIA = 5;
constexpr int GPU_MEDIUM = 0, HOST_MEDIUM = 1, DISK_MEDIUM = 2, EXTERNAL_MEDIUM = 3,
              OTHER_MEDIUM = 4;
// Media on which a block may be asked to follow the block before it.
constexpr int CLOSABLE_MEDIA = 4;
// Tiers beyond these are taken together with the tier of their medium that is local and nobody's.
constexpr size_t MOST_TIERS = 16;

struct Tier {
    int medium;
    bool is_remote = false;
    std::string owner;
};

// Tiers by their numbers; the first are the media themselves.
class Tiers {
  public:
    Tiers();

    // The tier that an event names. Where it names nothing but a medium it is the medium.
    int number_of(int medium, const WireEvent& event);
    const Tier& at(int number) const { return tiers_[static_cast<size_t>(number)]; }
    int size() const { return static_cast<int>(tiers_.size()); }

  private:
    std::vector<Tier> tiers_;
};

// The medium by its name; OTHER_MEDIUM where the name is not known.
int medium_named(const Text& name);

}  // namespace kvcanon
