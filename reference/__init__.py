"""The plain cache: one readable tree that keeps every law of the specification.

Read it as the worked example, one operation a file. `state` has all the data; every operation is a
function over it, and `cache` is the API, which checks the arguments.

Plain does not mean incomplete: asynchronous copies, failures and refusals are all here. Only
optimizations are left out.
"""

from kvcanon.reference.cache import ReferenceCache as ReferenceCache
from kvcanon.reference.engine import InlineEngine as InlineEngine
from kvcanon.reference.engine import ManualEngine as ManualEngine
