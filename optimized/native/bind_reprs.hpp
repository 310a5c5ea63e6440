// What `repr` shows of results and caches: one line, however much they have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runs.hpp"

namespace kvcanon {

struct CacheCore;

// "Name(field=value, ...)", written field by field.
class ReprText {
  public:
    explicit ReprText(const char* name) : text_(std::string(name) + "(") {}

    ReprText& add(const char* field, const std::string& value);
    ReprText& add(const char* field, int64_t number) { return add(field, std::to_string(number)); }
    // Nothing where there are none. Of many only the first and the last are shown, and how many
    // there are.
    ReprText& add_slots(const char* field, const Runs& slots);
    ReprText& add_ids(const char* field, const std::vector<uint64_t>& ids);
    std::string done() const { return text_ + ")"; }

  private:
    std::string text_;
    bool empty_ = true;
};

// What a cache is and how full. Reads sizes only, so that it may be called in the middle of a call,
// and of a cache that refuses all calls.
std::string repr_of(const char* class_name, const CacheCore& core);

}  // namespace kvcanon
