"""SGLang 0.5.13 loses, on its way to the device, the host copy of what it loads.

Under write_back a load evicts from the device; the victims are copied to the host, which evicts
from the host. The host copy to be loaded is not locked, and is evicted. The load then raises.

    python load_evicts_its_source.py

Beside SGLang it uses `small.py`. It ends with exit code 1 where the fault shows.
"""

from __future__ import annotations

import sys

from small import RELEASE, Small

COLD, WARM = [1, 2], [3, 4]

small = Small(2, host_tokens=3, write_policy="write_back")
small.insert(COLD)
small.evict(tokens=2)
small.wait()
small.insert(WARM)
found = small.match(COLD)
print(f"SGLang {RELEASE}: {found.host_hit_length} tokens are found on the host, and are loaded")
try:
    small.load(found)
except TypeError as error:
    print(f"the load raises {type(error).__name__}: {error}")
    sys.exit(1)
print(f"{small.hit(COLD)} of them are on the device afterwards")
