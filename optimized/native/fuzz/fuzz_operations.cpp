// The entry point of libFuzzer: any bytes are a configuration and a stream of operations.
#include "player.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    kvcanon::fuzz::Bytes bytes(data, size);
    kvcanon::fuzz::Player player(bytes);
    player.play();
    player.drain();
    return 0;
}
