// A stand-in for libcuda.so.1: the calls that transfers make, with the structures that the CUDA
// driver API documents, done at once by the processor. What the real driver refuses, it refuses.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>

namespace {

using CUdeviceptr = std::uint64_t;

constexpr int success = 0, invalid_value = 1, not_found = 500;
constexpr int already_registered = 712, not_registered = 713;
constexpr int host = 1, device = 2, stream_order = 1;

struct CUmemLocation {
  int type;
  int id;
};

struct CUmemcpyAttributes {
  int srcAccessOrder;
  CUmemLocation srcLocHint, dstLocHint;
  unsigned int flags;
};

struct CUDA_MEMCPY2D {
  std::size_t srcXInBytes, srcY;
  int srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  void* srcArray;
  std::size_t srcPitch;
  std::size_t dstXInBytes, dstY;
  int dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  void* dstArray;
  std::size_t dstPitch;
  std::size_t WidthInBytes, Height;
};

thread_local int capture_mode = 0;
constexpr unsigned int portable_and_mapped = 3;

std::size_t calls[3];  // Single copies, rectangles, batches.
std::size_t largest_batch;
int refusal = success;
std::map<void*, std::size_t> pinned;

void move(CUdeviceptr target, CUdeviceptr source, std::size_t bytes) {
  std::memcpy(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), bytes);
}

int batch(CUdeviceptr* targets, CUdeviceptr* sources, std::size_t* sizes, std::size_t count,
          CUmemcpyAttributes* attributes, std::size_t* firsts, std::size_t attribute_count,
          std::size_t* failed, void* stream) {
  ++calls[2];
  if (count > largest_batch) largest_batch = count;
  bool lawful = stream != nullptr && count > 0 && attribute_count == 1 && firsts[0] == 0 &&
                attributes->srcAccessOrder == stream_order && attributes->flags == 0 &&
                failed != nullptr;
  if (!lawful) return invalid_value;
  if (refusal != success) return refusal;
  for (std::size_t at = 0; at < count; ++at) move(targets[at], sources[at], sizes[at]);
  return success;
}

}  // namespace

extern "C" {

// For the tests.
void fake_reset(int refuse_with) {
  std::memset(calls, 0, sizeof calls);
  largest_batch = 0;
  refusal = refuse_with;
}
std::size_t fake_calls(int kind) { return calls[kind]; }
std::size_t fake_pinned_bytes() {
  std::size_t bytes = 0;
  for (const auto& each : pinned) bytes += each.second;
  return bytes;
}
int fake_capture_mode() { return capture_mode; }
std::size_t fake_largest_batch() { return largest_batch; }

// Of the driver.
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return refusal;
}

int cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, std::size_t bytes, void*) {
  ++calls[0];
  if (refusal != success) return refusal;
  move(target, source, bytes);
  return success;
}

int cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* order, void*) {
  ++calls[1];
  bool lawful = order->srcXInBytes == 0 && order->srcY == 0 && order->dstXInBytes == 0 &&
                order->dstY == 0 && order->srcPitch >= order->WidthInBytes &&
                order->dstPitch >= order->WidthInBytes;
  if (!lawful) return invalid_value;
  if (refusal != success) return refusal;
  auto source = order->srcMemoryType == host ? reinterpret_cast<CUdeviceptr>(order->srcHost)
                                             : order->srcDevice;
  auto target = order->dstMemoryType == host ? reinterpret_cast<CUdeviceptr>(order->dstHost)
                                             : order->dstDevice;
  for (std::size_t row = 0; row < order->Height; ++row)
    move(target + row * order->dstPitch, source + row * order->srcPitch, order->WidthInBytes);
  return success;
}

int cuThreadExchangeStreamCaptureMode(int* mode) {
  if (*mode < 0 || *mode > 2) return invalid_value;
  std::swap(*mode, capture_mode);
  return success;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = 10 + ordinal;
  return ordinal == 0 ? success : invalid_value;
}

int cuDeviceGetPCIBusId(char* text, int characters, int device) {
  if (device != 10 || characters < 13) return invalid_value;
  std::strcpy(text, "0000:3B:00.0");
  return success;
}

int cuMemHostRegister_v2(void* address, std::size_t bytes, unsigned int flags) {
  if (refusal != success) return refusal;
  if (bytes == 0 || flags != portable_and_mapped) return invalid_value;
  if (!pinned.emplace(address, bytes).second) return already_registered;
  return success;
}

int cuMemHostUnregister(void* address) {
  return pinned.erase(address) == 1 ? success : not_registered;
}

int cuMemHostGetDevicePointer_v2(CUdeviceptr* found, void* address, unsigned int flags) {
  *found = reinterpret_cast<CUdeviceptr>(address);
  return flags == 0 ? success : invalid_value;
}

#ifndef WITHOUT_BATCHES
int cuGetProcAddress_v2(const char* symbol, void** found, int version, std::uint64_t flags,
                        int* status) {
  bool known = std::strcmp(symbol, "cuMemcpyBatchAsync") == 0 && version == 12080 && flags == 0;
  *found = known ? reinterpret_cast<void*>(batch) : nullptr;
  *status = known ? 0 : 1;
  return known ? success : not_found;
}
#endif
}
