"""The fast cache: the operations, results and events of `kvcanon.reference`, in native code.

The native module `kvcanon.optimized._core` makes the decisions. It is in kvcanon's wheels, and is
compiled where none fits.

Without the native module, importing this package fails and says what to do. It does not fall back
to the reference: someone might measure, or serve from, the wrong cache without noticing.
"""

from importlib import import_module

CORE = "kvcanon.optimized._core"

try:
    # The core first: it refuses a subinterpreter, in which importing torch may never return.
    for name in (CORE, "numpy", "torch"):
        import_module(name)
except ModuleNotFoundError as error:
    if error.name == CORE:
        raise ImportError(
            "kvcanon.optimized has no native core here: kvcanon was installed without it; run "
            "`pip install --force-reinstall --no-deps --no-cache-dir kvcanon`, which needs a C++17 "
            "compiler such as g++ where no wheel fits, or in a checkout `make native`."
        ) from error
    raise ImportError(
        f"kvcanon.optimized needs {error.name}, which is not installed; "
        "run `pip install 'kvcanon[optimized]'`."
    ) from error

from kvcanon.optimized.cache import OptimizedCache as OptimizedCache
from kvcanon.optimized.prefix_cache import PrefixCache as PrefixCache
