"""Caches by name: ours, or anyone's, as `package.module:factory`.

What readers get wrong: a factory is called with a `CacheConfig` and returns an empty cache, which
has the whole protocol of `kvcanon.spec.cache.Cache`. Nothing is filled in for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TypeAlias, cast

from kvcanon.conformance.cli.faults import Fault, what_was_raised
from kvcanon.reference import ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig

CacheFactory: TypeAlias = Callable[[CacheConfig], Cache]

NAMED: dict[str, CacheFactory] = {"reference": ReferenceCache}
"""Caches that have a name of their own."""

PROTOCOL = tuple(name for name in vars(Cache) if not name.startswith("_"))
"""What a cache must have."""


def make_cache(name: str, config: CacheConfig) -> Cache:
    """An empty cache of this name. Raises: Fault."""
    factory = _factory(name)
    try:
        made = factory(config)
    except Exception as error:
        raise Fault(f"{name} made no cache: {what_was_raised(error)}") from error
    missing = [method for method in PROTOCOL if not hasattr(made, method)]
    if missing:
        kind = type(made).__name__
        raise Fault(f"{name} made no cache: its {kind} lacks {', '.join(missing)} of spec/cache.py")
    return made


def _factory(name: str) -> CacheFactory:
    if name in NAMED:
        return NAMED[name]
    module_name, colon, factory_name = name.partition(":")
    if not (module_name and colon and factory_name):
        known = ", ".join(NAMED)
        raise Fault(f"no cache {name!r}; name {known}, or one as package.module:factory")
    # As under `python -m`, modules of the folder that one works in are found.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except (Exception, SystemExit) as error:
        raise Fault(f"{module_name} cannot be imported: {what_was_raised(error)}") from error
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        raise Fault(f"{module_name} has no factory {factory_name!r}")
    return cast("CacheFactory", factory)
