// Refusals across the border: each becomes the exception of its name in `kvcanon.spec.errors`.
#pragma once

namespace kvcanon {

void bind_errors();

}  // namespace kvcanon
