#include "torch_exchange.hpp"

#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdlib>
#include <new>

namespace nb = nanobind;

namespace kvcanon {

namespace {

// As DLPack 1.1 and later lay them out.
struct Version {
    uint32_t major, minor;
};

struct ManagedTensor {
    Version version;
    void* context;
    void (*deleter)(ManagedTensor*);
    uint64_t flags;
    nb::dlpack::dltensor tensor;
};

struct Functions {
    Version version;
    Functions* older;
    void* allocate;
    void* read_managed;
    int (*make)(ManagedTensor* tensor, void** made);
    int (*look)(void* object, nb::dlpack::dltensor* seen);
    void* stream;
};

constexpr uint32_t MAJOR = 1;
constexpr const char* CAPSULE = "dlpack_exchange_api";

// Of the torch of this process; never released.
const Functions* functions = nullptr;
PyTypeObject* tensor_type = nullptr;

// A tensor with its one length, one stride and numbers, in one piece of memory.
struct Block {
    ManagedTensor managed;
    int64_t count, stride;
};

}  // namespace

std::optional<Int64s> int64s_of(nb::handle tensor) {
    // Torch takes its word for it that this is a tensor.
    if (PyType_IsSubtype(Py_TYPE(tensor.ptr()), tensor_type) == 0) return {};
    nb::dlpack::dltensor seen;
    if (functions->look(tensor.ptr(), &seen) != 0) {
        PyErr_Clear();
        return {};
    }
    const bool is_int64 = seen.dtype == nb::dtype<int64_t>();
    if (!is_int64 || seen.device.device_type != nb::device::cpu::value || seen.ndim != 1) return {};
    if (seen.shape[0] > 1 && seen.strides != nullptr && seen.strides[0] != 1) return {};
    const auto* bytes = static_cast<const std::byte*>(seen.data) + seen.byte_offset;
    return Int64s{reinterpret_cast<const int64_t*>(bytes), seen.shape[0]};
}

NewTensor::NewTensor(int64_t count)
    : memory_(std::malloc(sizeof(Block) + static_cast<size_t>(count) * sizeof(int64_t))) {
    if (memory_ == nullptr) throw std::bad_alloc();
    auto* block = new (memory_) Block{};
    block->count = count;
    block->stride = 1;
    block->managed.version = {MAJOR, 0};
    block->managed.deleter = [](ManagedTensor* self) { std::free(self); };
    nb::dlpack::dltensor& tensor = block->managed.tensor;
    tensor.data = block + 1;
    tensor.device.device_type = nb::device::cpu::value;
    tensor.ndim = 1;
    tensor.dtype = nb::dtype<int64_t>();
    tensor.shape = &block->count;
    tensor.strides = &block->stride;
}

NewTensor::~NewTensor() { std::free(memory_); }

int64_t* NewTensor::numbers() const {
    return reinterpret_cast<int64_t*>(static_cast<Block*>(memory_) + 1);
}

nb::object NewTensor::take() {
    void* made = nullptr;
    // What it refuses it has not taken.
    if (functions->make(static_cast<ManagedTensor*>(memory_), &made) != 0) {
        nb::raise_python_error();
    }
    memory_ = nullptr;
    return nb::steal(static_cast<PyObject*>(made));
}

void find_torch() {
    if (functions != nullptr) return;
    const nb::object tensors = nb::module_::import_("torch").attr("Tensor");
    const nb::object capsule = nb::getattr(tensors, "__dlpack_c_exchange_api__", nb::none());
    const void* found = nullptr;
    if (PyCapsule_IsValid(capsule.ptr(), CAPSULE) != 0) {
        found = PyCapsule_GetPointer(capsule.ptr(), CAPSULE);
    }
    const auto* offered = static_cast<const Functions*>(found);
    while (offered != nullptr && offered->version.major != MAJOR) offered = offered->older;
    if (offered == nullptr || offered->look == nullptr) {
        throw nb::import_error(
            "this torch has no exchange API of DLPack 1 (`torch.Tensor.__dlpack_c_exchange_api__`);"
            " install torch 2.10 or later");
    }
    tensor_type = reinterpret_cast<PyTypeObject*>(nb::object(tensors).release().ptr());
    functions = offered;
}

}  // namespace kvcanon
