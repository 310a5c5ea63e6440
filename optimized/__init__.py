"""The fast cache: the operations, results and events of `kvcanon.reference`, in native code.

The native module `kvcanon.optimized._core` makes the decisions. It is compiled when kvcanon is
installed.

Without the native module, importing this package fails and says what to do. It does not fall back
to the reference: someone might measure, or serve from, the wrong cache without noticing.
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
