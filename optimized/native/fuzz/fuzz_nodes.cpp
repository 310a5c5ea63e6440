// The entry point of libFuzzer for the calls by node: any bytes are a configuration and calls.
#include "node_player.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    kvcanon::fuzz::Bytes bytes(data, size);
    kvcanon::fuzz::NodePlayer player(bytes);
    player.play();
    player.drain();
    return 0;
}
