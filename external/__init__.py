"""The external tier: pages of keys and values on another machine, in Redis or Mooncake Store.

A page is one value: a header, which says whose page it is and has a checksum, and its bytes. So all
of a page is there, or nothing. A value that does not agree with its header, or whose header is not
that of the page that was asked for, is a miss, and is removed.

Stores here wait for their server as long as its client does: `kvcanon.optimized` calls them from
threads of its own, with a deadline. They need neither torch nor the native core.
"""

from importlib import import_module

try:
    for name in ("numpy", "xxhash"):
        import_module(name)
except ModuleNotFoundError as error:
    raise ImportError(
        f"kvcanon.external needs {error.name}, which is not installed; "
        "run `pip install 'kvcanon[redis]'` or `pip install 'kvcanon[mooncake]'`."
    ) from error

from kvcanon.external.failing import ExternalFailed as ExternalFailed
from kvcanon.external.figures import ExternalFigures as ExternalFigures
