"""SGLang 0.5.12.post1 forgets, where it cuts a node, how often the upper part was hit.

write_through_selective copies data with two hits to the host. Two prompts begin with the same
tokens, so these have two hits. But the second prompt cuts the node of the first, and the upper part
starts with no hits.

    python split_drops_hit_count.py

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import RELEASE, Small

small = Small(8, host_tokens=12, write_policy="write_through_selective")
small.insert([1, 2, 3])
small.insert([1, 2, 4])
small.wait()
small.evict(tokens=8)
found = small.match([1, 2]).host_hit_length
print(f"SGLang {RELEASE}: [1, 2] came twice; {found} of its tokens are found on the host")
sys.exit(found < 2)
