// The ways to compute SHA-256 that are compiled in, each for itself.
#pragma once

#include "sha256.hpp"

namespace kvcanon {

// Plain C++, for every processor.
Sha256 portable_sha256();

#if defined(__x86_64__)
// The SHA extensions of x86-64.
bool has_sha_ni();
Sha256 sha_ni_sha256();
#endif

}  // namespace kvcanon
