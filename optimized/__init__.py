"""The fast cache, which runs: same operations, outcomes and events as `kvcanon.reference`.

Its decisions are made in a native module, `kvcanon.optimized._core`, that is compiled when kvcanon
is installed.

What readers get wrong: where the module is missing nothing takes its place. Falling back to the
reference in silence would let someone measure, or serve from, a cache that they did not ask for. So
importing this package fails at once, and says what is missing and the mend.
"""

from importlib import import_module

CORE = "kvcanon.optimized._core"

try:
    for name in ("numpy", "torch", CORE):
        import_module(name)
except ModuleNotFoundError as error:
    if error.name == CORE:
        raise ImportError(
            "kvcanon.optimized has no native core here: none was compiled when kvcanon was "
            "installed; install a C++17 compiler such as g++ and run `pip install "
            "--force-reinstall --no-cache-dir --no-binary kvcanon 'kvcanon[optimized]'`, or in a "
            "checkout `make native`."
        ) from error
    raise ImportError(
        f"kvcanon.optimized needs {error.name}, which is not installed; "
        "run `pip install 'kvcanon[optimized]'`."
    ) from error

from kvcanon.optimized.cache import OptimizedCache as OptimizedCache
from kvcanon.optimized.prefix_cache import PrefixCache as PrefixCache
