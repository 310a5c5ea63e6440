#include "reset.hpp"

#include "emit.hpp"
#include "errors.hpp"
#include "slots.hpp"
#include "tree.hpp"

namespace kvcanon {

void reset(State& state) {
    if (!state.holds.empty()) throw CacheBusy(static_cast<int64_t>(state.holds.size()));
    free_tree(state);
    forget_tree(state);
    emit_cleared(state);
}

}  // namespace kvcanon
