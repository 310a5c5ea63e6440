// Objects of Python by node, that the garbage collector does not see.
//
// A full collection visits every tracked object of the process: a hundred thousand small tensors
// would stall a scheduler for tens of milliseconds. These hold nothing of Python, so that no cycle
// can run through them, and are taken off the collector's lists. An object that is handed out again
// stays off them, which is right for what holds nothing.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <unordered_map>

namespace kvcanon {

class KeptObjects {
  public:
    void put(uint64_t node, nanobind::object kept);
    nanobind::object get(uint64_t node) const;
    nanobind::object pop(uint64_t node);
    bool has(uint64_t node) const { return kept_.count(node) != 0; }
    size_t size() const { return kept_.size(); }
    void clear();
    nanobind::list nodes() const;

  private:
    std::unordered_map<uint64_t, nanobind::object> kept_;
};

// Adds the class.
void bind_kept_objects(nanobind::module_& m);

}  // namespace kvcanon
