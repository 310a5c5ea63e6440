"""Adapters by name: built-in ones, any as `package.module:factory`, or a child process.

A name leads to an `Adapter`, or to a function that makes caches. A function is assumed to offer
every configuration; an adapter says what it offers.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import redirect_stdout
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import cast

from attrs import evolve

from kvcanon.conformance.errors import UsageError, describe_exception
from kvcanon.conformance.protocol.adapter import Adapter, MakeCache, Offer
from kvcanon.conformance.protocol.tree import TreeCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.tier import StoreQueue
from kvcanon.spec.transfer import Agree, TransferEngine


def _reference(
    config: CacheConfig,
    engine: TransferEngine | None = None,
    agree: Agree | None = None,
    store: StoreQueue | None = None,
) -> TreeCache:
    # Who names another cache does not wait for this import.
    from kvcanon.reference import ReferenceCache  # noqa: PLC0415

    return ReferenceCache(config, engine, agree, store)


CHECKED = Offer(other_keys=True, states_within=True)
"""What the caches of this project offer: they check the pages and units of keys, and take mamba
states at several pages of an insert."""
REFERENCE = Adapter("reference", _reference, evolve(CHECKED, stores=True))
"""The plain cache, whose answers the vectors have."""
PIPE = "pipe:"
"""The beginning of the name of a cache in a child process; its command follows."""

CHECKING = ("optimized",)
"""The bare factories among the names below whose caches offer what those of this project do."""
SHORT = {
    "variant": "kvcanon.lab.variants.variant:VARIANT",
    "optimized": "kvcanon.optimized:OptimizedCache",
    "sglang": "kvcanon.conformance.engines.sglang.adapters:UNIFIED",
    "sglang-rust": "kvcanon.conformance.engines.sglang.adapters:NATIVE",
    "sglang-kvcanon": "kvcanon.conformance.engines.sglang.adapters_bridged:BRIDGED",
    "sglang-mended": "kvcanon.lab.releases.mended.adapter:MENDED",
    "sglang-radix": "kvcanon.conformance.engines.sglang.adapters_plain:RADIX",
    "sglang-swa-radix": "kvcanon.conformance.engines.sglang.adapters_plain:WINDOW",
    "sglang-hi-radix": "kvcanon.conformance.engines.sglang.adapters_plain:HIERARCHICAL",
    "vllm": "kvcanon.conformance.engines.vllm.adapters:VLLM",
    "vllm-counted": "kvcanon.conformance.engines.vllm.adapters:COUNTED",
    "max": "kvcanon.conformance.engines.max.adapters:PAGED",
    "max-jenga": "kvcanon.conformance.engines.max.adapters:JENGA",
    "mlx-lm": "kvcanon.conformance.engines.mlx_lm.adapters:MLX_LM",
    "lmdeploy": "kvcanon.conformance.engines.lmdeploy.adapters:SCHEDULED",
    "lmdeploy-trie": "kvcanon.conformance.engines.lmdeploy.adapters:TRIE",
    "lmdeploy-trie-fine": "kvcanon.conformance.engines.lmdeploy.adapters:FINE",
    "transformers": "kvcanon.conformance.engines.transformers.paged_cache:PAGED",
    "lmcache": "kvcanon.conformance.engines.lmcache.local_cpu:LOCAL",
    "nano-vllm": "kvcanon.conformance.engines.nano_vllm.block_manager:NANO",
    "mini-sglang": "kvcanon.conformance.engines.mini_sglang.radix:MINI",
    "sglang-jax": "kvcanon.conformance.engines.sgl_jax.radix:RADIX",
    "sglang-jax-window": "kvcanon.conformance.engines.sgl_jax.radix:WINDOW",
    "lightllm": "kvcanon.conformance.engines.lightllm.radix:LIGHT",
}
"""Short names of factories; each is imported on use only, since not everyone has its libraries."""

LOADED: dict[str, Adapter] = {REFERENCE.name: REFERENCE}
"""Adapters that need no import, by name. A check in this process may add local ones."""


def load_adapter(name: str) -> Adapter:
    """Return the adapter of this name. Raises: UsageError."""
    if name in LOADED:
        return LOADED[name]
    if name.startswith(PIPE):
        # Other caches do not wait for this import.
        from kvcanon.conformance.protocol.pipe import pipe_adapter  # noqa: PLC0415

        return pipe_adapter(name.removeprefix(PIPE))
    found = object_named(SHORT.get(name, name))
    if isinstance(found, Adapter):
        return found
    if found is Adapter:
        module = name.rpartition(":")[0]
        others = list(_factories(_imported(_as_module(module))))
        yours = f", as {module}:{others[0]}" if others else ""
        raise UsageError(f"{name} is the class that {module} imports; name your adapter{yours}")
    if not callable(found):
        what = "None" if found is None else f"no factory but a {type(found).__name__}"
        raise UsageError(f"{name} is {what}; name a function, a class or an Adapter")
    offer = evolve(CHECKED, stores=True) if name in CHECKING else Offer()
    return Adapter(name, cast("MakeCache", found), offer, is_bare=True)


def object_named(name: str) -> object:
    """What `package.module:attribute` or `file.py:attribute` names. Raises: UsageError."""
    module_name, _, attribute = name.rpartition(":")
    if not (module_name and attribute):
        raise UsageError(_why_unnamed(name.removesuffix(":")))
    return _attribute_of(_imported(_as_module(module_name)), attribute, name)


def _why_unnamed(name: str) -> str:
    """Why a name without an attribute names no cache, and which name may be meant.

    Raises: UsageError, if it is that of a module that cannot be imported.
    """
    if Path(name).is_file() and Path(name).suffix != ".py":
        return f"{name} is no cache and no Python file; name a cache, and a trace by --trace"
    if Path(name).is_file() or _is_module(name):
        found = list(_factories(_imported(_as_module(name))))
        hint = f", as {name}:{found[0]}" if found else f": {name}:FACTORY"
        if found[1:]:
            hint += f"; it also has {', '.join(found[1:])}"
        what = "a file" if Path(name).is_file() else "a module"
        return f"{name} is {what}; name the adapter or the factory in it{hint}"
    near = get_close_matches(name, [REFERENCE.name, *SHORT], n=3)
    if near:
        return f"no cache {name!r}; near it {'are' if near[1:] else 'is'} {', '.join(near)}"
    known = ", ".join([REFERENCE.name, *SHORT])
    ways = f"one as package.module:factory, or a child process as {PIPE}COMMAND"
    return f"no cache {name!r}; name {known}, {ways}"


def _as_module(name: str) -> str:
    """The name of a module, which may be given by its file. The file's folder is searched."""
    path = Path(name)
    if path.suffix != ".py" or not path.is_file():
        return name.removesuffix(".py")
    if (folder := str(path.parent.resolve())) not in sys.path:
        sys.path.insert(0, folder)
    return path.stem


def _is_module(name: str) -> bool:
    """Whether a module of this name is there, which is not one of Python's own."""
    if (
        not name.replace(".", "").isidentifier()
        or name.split(".", maxsplit=1)[0] in sys.stdlib_module_names
    ):
        return False
    _search_here()
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _factories(module: ModuleType) -> Iterator[str]:
    """What a module has that may be named: adapters first, then its own functions and classes."""
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    yield from (name for name, value in public.items() if isinstance(value, Adapter))
    for name, value in public.items():
        if callable(value) and getattr(value, "__module__", None) == module.__name__:
            yield name


def _search_here() -> None:
    """Let modules in the current folder be found, as under `python -m`."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)


def _imported(module_name: str) -> ModuleType:
    """Import a module; what it prints goes to stderr, as stdout has reports. Raises: UsageError."""
    _search_here()
    try:
        with redirect_stdout(sys.stderr):
            return import_module(module_name)
    except UsageError as error:
        raise UsageError(f"{error}{_line_of(error, module_name)}") from error
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"{module_name} cannot be imported: {describe_exception(error)}"
        ) from error


def _line_of(error: UsageError, module_name: str) -> str:
    """The line of the named module at which an error came up, in brackets; "" if unknown."""
    wanted = f"{module_name.rpartition('.')[2]}.py"
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).name == wanted
    ]
    return f" ({wanted}:{lines[-1]})" if lines else ""


def _attribute_of(module: ModuleType, attribute: str, name: str) -> object:
    """Return an attribute of a module. Raises: UsageError."""
    try:
        return getattr(module, attribute)
    except AttributeError:
        near = get_close_matches(attribute, vars(module), n=3)
        hint = f"; near it are {', '.join(near)}" if near else ""
    except Exception as error:  # noqa: BLE001  # Of the module's own `__getattr__`.
        hint = f": {describe_exception(error)}"
    raise UsageError(f"{name.partition(':')[0]} has no factory {attribute!r}{hint}")
