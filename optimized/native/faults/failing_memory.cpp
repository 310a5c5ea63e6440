#include "failing_memory.hpp"

#include <cstdlib>
#include <new>

namespace kvcanon::faults {

namespace {

bool armed = false;
bool reached = false;
bool once = true;
long left = 0;

}  // namespace

FailingMemory::FailingMemory(long allocation, Fails fails) {
    left = allocation;
    once = fails == Fails::ONCE;
    reached = false;
    armed = true;
}

FailingMemory::~FailingMemory() { armed = false; }

bool FailingMemory::failed() { return reached; }

bool FailingMemory::fails_now() {
    if (!armed || left-- > 0) return false;
    const bool fails = !reached || !once;
    reached = true;
    return fails;
}

FailingMemory::Pause::Pause() : was_armed_(armed) { armed = false; }

FailingMemory::Pause::~Pause() { armed = was_armed_; }

}  // namespace kvcanon::faults

namespace {

void* allocate(std::size_t bytes) {
    if (kvcanon::faults::FailingMemory::fails_now()) throw std::bad_alloc();
    void* memory = std::malloc(bytes == 0 ? 1 : bytes);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }

// The program is linked with --wrap=realloc.
extern "C" void* __real_realloc(void* memory, std::size_t bytes);
extern "C" void* __wrap_realloc(void* memory, std::size_t bytes) {
    if (kvcanon::faults::FailingMemory::fails_now()) return nullptr;
    return __real_realloc(memory, bytes);
}
