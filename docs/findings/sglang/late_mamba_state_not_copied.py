"""SGLang 0.5.13 never copies a mamba state to the host that comes after the full data.

A prompt is known as the beginning of a longer one, and has no state at its end. Then it comes
alone, and brings its state; it has been hit often enough now, and is copied to the host, before the
state is attached. Whatever comes later, the state is not copied; so nothing of the prompt can be
loaded.

    python late_mamba_state_not_copied.py

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import RELEASE, Small

PROMPT, LONGER = [1, 2], [1, 2, 3, 4]


def found_on_host(*, longer_first: bool) -> int:
    """How many tokens of the prompt are found on the host after all has left the device."""
    small = Small(16, states=4, host_tokens=20, write_policy="write_through_selective")
    if longer_first:
        small.insert(LONGER, state=small.state_slots.alloc(1))
    for _ in range(3):
        state = small.state_slots.alloc(1)
        if small.insert(PROMPT, state=state).mamba_exist:
            small.state_slots.free(state)
        small.wait()
    assert small.hit(PROMPT) == len(PROMPT)
    small.evict(tokens=16)
    small.wait()
    return int(small.match(PROMPT).host_hit_length)


alone, after = found_on_host(longer_first=False), found_on_host(longer_first=True)
print(
    f"SGLang {RELEASE}: a prompt comes three times, and {alone} of its tokens are found on the host"
)
print(f"the same after a longer one that begins with it: {after} of its tokens are found there")
sys.exit(after < alone)
