// Tensors of torch, read and made without Python code, by the functions that torch offers to C: the
// exchange API of DLPack (https://dmlc.github.io/dlpack/latest/c_api.html).
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

namespace kvcanon {

// 64-bit integers in the memory of the host, one after the other.
struct Int64s {
    const int64_t* data = nullptr;
    int64_t size = 0;
};

// The numbers of a tensor, while it lives; nothing for a tensor of another type, on a device, or
// with gaps, and for what is no tensor.
std::optional<Int64s> int64s_of(nanobind::handle tensor);

// A tensor to be: numbers that its maker writes first.
class NewTensor {
  public:
    // Throws: std::bad_alloc.
    explicit NewTensor(int64_t count);
    NewTensor(const NewTensor&) = delete;
    NewTensor& operator=(const NewTensor&) = delete;
    ~NewTensor();

    int64_t* numbers() const;

    // The tensor, which has the memory from here on. Throws: what torch raises.
    nanobind::object take();

  private:
    void* memory_;
};

// Find torch's functions, once. Throws: ImportError where there is no torch, or one without them.
void find_torch();

}  // namespace kvcanon
