"""SGLang 0.5.13 never returns from an eviction of window data when the host is full.

Under write_back a leaf is copied to the host before it is evicted from the device. If the host is
full, the leaf stays on the device, and no slot is freed, though `evictable_size` counts it. The
eviction of window data chooses the same leaf forever: the scheduler hangs.

    python eviction_loops_at_full_host.py

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows, after ten
seconds.
"""

from __future__ import annotations

import signal
import sys
import traceback

from small import RELEASE, Small

SECONDS = 10


def too_long(_signal: int, frame: object) -> None:
    print(f"SGLang {RELEASE}: no answer after {SECONDS} seconds; it is here:")
    traceback.print_stack(frame, limit=6)  # type: ignore[arg-type]
    sys.exit(1)


full = Small(2, host_tokens=1, write_policy="write_back")
full.insert([1, 2])
counted = full.cache.evictable_size()
freed = full.evict(tokens=1).num_tokens_evicted
print(f"SGLang {RELEASE}: of {counted} evictable tokens {freed} are evicted")
small = Small(8, window=2, host_tokens=1, write_policy="write_back")
small.insert([1, 2])
signal.signal(signal.SIGALRM, too_long)
signal.alarm(SECONDS)
answer = small.evict(window_tokens=1)
print(f"SGLang {RELEASE}: {answer.swa_num_tokens_evicted} tokens of window data were evicted")
