"""SGLang's HiRadixCache gives the priority of an insert to what its prompt does not have.

Two prompts share a prefix; the second has a high priority. The rest of the first prompt gets the
high priority, too: it stays, and a prompt of medium priority is evicted instead.

    python insert_raises_priority_of_other_pages.py hi-radix

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import CLASS, RELEASE, Small

PLAIN, IMPORTANT, MIDDLING = [1, 2], [1, 3], [8]

small = Small(8, eviction_policy="priority")
small.insert(PLAIN, priority=0)
small.insert(MIDDLING, priority=1)
small.insert(IMPORTANT, priority=5)
small.wait()
small.evict(tokens=1)
plain, middling = small.hit(PLAIN), small.hit(MIDDLING)
print(f"SGLang {RELEASE}, {CLASS[0]}: {PLAIN} has priority 0, {MIDDLING} 1 and {IMPORTANT} 5")
print(f"after one token was evicted {plain} of {PLAIN} and {middling} of {MIDDLING} are found")
sys.exit(plain == len(PLAIN) and not middling)
