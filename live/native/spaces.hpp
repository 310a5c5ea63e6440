// The namespaces of a stream: which there are, and how their hash chains may begin.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sha256.hpp"
#include "wire_batch.hpp"

namespace kvcanon {

using Seed = std::array<uint8_t, HASH_BYTES>;

struct Space {
    Text salt, lora, extra_key;
    // The texts above, which must live as long as the namespace.
    std::string kept[3];
    std::string extra;
    // What hash chains of this namespace may begin with, the likeliest first.
    std::vector<Seed> seeds;
    uint64_t blocks = 0;
    // Hashes that were computed from the tokens and agreed.
    uint64_t verified = 0;
    std::string name;

    bool is_default() const {
        return !salt.is_there && !lora.is_there && !extra_key.is_there && extra.empty();
    }
};

// Asks for the seeds of a namespace that is new.
using FindSeeds = std::function<std::vector<Seed>(const Space&)>;

// Namespaces by a number, which is used again when no block of a namespace is left: clients choose
// salts, so that there may be any number of namespaces over time.
class Spaces {
  public:
    explicit Spaces(FindSeeds find_seeds);

    // The number of the namespace that an event names, with the names among the extra keys of a
    // first block; 0 is the default one.
    uint32_t number_of(const WireEvent& event, std::string_view extra);
    Space& at(uint32_t number) { return spaces_[number]; }
    // The seeds of a namespace to those who know prompts by their salt and LoRA alone, where empty
    // texts are none.
    std::vector<Seed> seeds_of_prompts(const Space& space) const;
    // How many have blocks.
    size_t used() const { return used_; }
    void hold(uint32_t number) { used_ += spaces_[number].blocks++ == 0 ? 1 : 0; }
    void release(uint32_t number);
    // Forget a namespace that an event named and that has no block.
    void tidy(uint32_t number);

  private:
    FindSeeds find_seeds_;
    // A deque, since the texts of a namespace must not move.
    std::deque<Space> spaces_;
    std::vector<uint32_t> unused_;
    std::map<std::string, uint32_t, std::less<>> numbers_;
    size_t used_ = 0;
};

}  // namespace kvcanon
