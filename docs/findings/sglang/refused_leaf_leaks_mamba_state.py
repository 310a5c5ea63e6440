"""SGLang 0.5.13 leaks the mamba state of a prompt whose window data is all gone.

A prompt is inserted whose window data has left its request's window. No leaf is made for it, and
its full slots are freed. Its mamba state is not, and the result has `mamba_exist=False`: that
the tree has taken it, so that the request does not free it, either.

    python refused_leaf_leaks_mamba_state.py

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import RELEASE, Small

PROMPT = [1, 2]

small = Small(8, window=1, states=2)
states = small.state_slots
all_of_them = states.available_size()
state = states.alloc(1)
answer = small.insert(PROMPT, window_gone=len(PROMPT), state=state)
if answer.mamba_exist:
    states.free(state)  # What `cleanup_after_caching_req` does; it keeps it where there was none.
print(
    f"SGLang {RELEASE}: mamba_exist={answer.mamba_exist}; the tree has "
    f"{small.cache.mamba_evictable_size()} states, "
    f"{states.available_size()} of {all_of_them} are free"
)
small.evict(tokens=8, window_tokens=8, states=2)
lost = all_of_them - states.available_size()
print(f"everything is evicted; {lost} states are lost")
sys.exit(lost > 0)
