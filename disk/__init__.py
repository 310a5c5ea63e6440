"""The disk tier: pages of keys and values in a folder, which outlive crashes and prove themselves.

`DiskStore` keeps pages in a *slab*, a large file of slots, and notes each in a *journal*. A slot
repeats the journal's record of its page, and the record has a checksum of the bytes. A page that
does not agree with its record is a miss. What was acknowledged is on the disk.

It needs neither torch nor the native core: an engine's own environment with NumPy and xxhash is
enough. `kvcanon.disk.sglang_storage` is the same as a storage backend of SGLang's HiCache.
"""

from importlib import import_module

try:
    for name in ("numpy", "xxhash"):
        import_module(name)
except ModuleNotFoundError as error:
    raise ImportError(
        f"kvcanon.disk needs {error.name}, which is not installed; "
        "run `pip install 'kvcanon[disk]'`."
    ) from error

from kvcanon.disk.errors import DiskUnusable as DiskUnusable
from kvcanon.disk.identity import DiskIdentity as DiskIdentity
from kvcanon.disk.parts import PageGet as PageGet
from kvcanon.disk.parts import PagePut as PagePut
from kvcanon.disk.store import DiskStore as DiskStore
