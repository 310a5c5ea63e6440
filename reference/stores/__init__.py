"""Two plain stores that keep every law of stores: one in memory, and one of files.

`MemoryStore` is the client of a server that may stop: it has a deadline, a breaker and a capacity.
`FileStore` has a file for each page, which outlives crashes and shows damage. Read them as the
worked examples; neither is fast.
"""

from kvcanon.reference.stores.file_store import FileStore as FileStore
from kvcanon.reference.stores.memory_store import MemoryServer as MemoryServer
from kvcanon.reference.stores.memory_store import MemoryStore as MemoryStore
