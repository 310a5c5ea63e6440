"""SGLang's SWARadixCache frees more full slots than it returns.

An eviction of window data evicts a leaf, and with it the nodes above that have no window data.
Their full slots are freed, but `num_tokens_evicted` does not count them.

    python eviction_count_too_low.py swa-radix

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import CLASS, RELEASE, Small

PROMPT = [1, 2, 3]

small = Small(8, window=1)
small.insert(PROMPT, window_gone=2)
before = small.free_tokens()
evicted = small.evict(window_tokens=1)
came = small.free_tokens() - before
print(f"SGLang {RELEASE}, {CLASS[0]}: {PROMPT} has window data at its last token")
print(f"one token of it is evicted: {evicted.num_tokens_evicted} full slots are returned as freed")
print(f"{came} full slots came free")
sys.exit(came != evicted.num_tokens_evicted)
