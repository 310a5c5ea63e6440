"""Which release of SGLang the tree core is made for, and how it is selected.

The plugin says so before it may import kvcanon.optimized, and the refusals there say it, too.
"""

from importlib.metadata import PackageNotFoundError, version

NAME = "kvcanon"
SELECTS = "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"
"""The variable whose value `NAME` selects this core."""
RELEASE = "0.5.23"
"""The release of SGLang that this core is tested with."""
OTHERWISE = f"unset {SELECTS} to serve with SGLang's own core"


def installed_version() -> str:
    """The version of kvcanon."""
    try:
        return version("kvcanon")
    except PackageNotFoundError:
        return "of a checkout"
