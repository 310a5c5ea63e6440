"""The API of the fast cache as editors and `help` show it, and the enums that its core exports."""

from __future__ import annotations

import ast
import copy
import gc
import inspect
import pickle
import weakref
from pathlib import Path
from types import FunctionType

import pytest

from fast.caches import new_cache
from kvcanon.optimized import PrefixCache, _core, codes
from kvcanon.reference.engine import ManualEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import CPU, GPU, Component, Counts, EvictionPolicy, WritePolicy

PUBLIC = sorted(name for name in dir(PrefixCache) if not name.startswith("_"))
NATIVE = sorted(name for name in dir(_core.CacheCore) if not name.startswith("_"))
SIGNED = [("CacheCore", name) for name in NATIVE] + [
    ("Nodes", name) for name in dir(_core.Nodes) if not name.startswith("_")
]


def native_doc(owner: str, name: str) -> tuple[str, str]:
    """The signature and the docstring of a native method, as Python has them."""
    signature, _, text = (getattr(getattr(_core, owner), name).__doc__ or "").partition("\n\n")
    return signature, text


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_member_has_a_docstring_and_a_signature(name: str) -> None:
    """Each public member has a docstring; each method has a signature, too."""
    member = getattr(PrefixCache, name)
    if isinstance(member, property):
        assert member.__doc__
    elif isinstance(member, FunctionType):
        assert member.__doc__
        assert inspect.signature(member).parameters
    else:
        assert name in NATIVE


@pytest.mark.parametrize("name", NATIVE)
def test_a_native_method_is_called_without_a_python_frame(name: str) -> None:
    """`PrefixCache` has the native method itself."""
    assert getattr(PrefixCache, name) is getattr(_core.CacheCore, name)


@pytest.mark.parametrize(("owner", "name"), SIGNED)
def test_a_native_method_has_a_signature_and_a_docstring(owner: str, name: str) -> None:
    """Each public method says what it takes and gives: the stub is made of that."""
    signature, text = native_doc(owner, name)
    shown = ast.parse(f"def {signature}: ...").body[0]
    assert isinstance(shown, ast.FunctionDef)
    assert all(each.annotation for each in shown.args.args[1:])
    assert shown.returns is not None
    assert text


def test_a_cache_is_not_copied_or_pickled() -> None:
    """Copying a cache is refused: its tree and pools exist once."""
    cache = new_cache(CacheConfig(device_slots=Counts(full=4)))
    with pytest.raises(TypeError):
        copy.copy(cache)
    with pytest.raises(TypeError):
        pickle.dumps(cache)


def test_a_cache_in_a_cycle_is_collected() -> None:
    """A cache goes, though its engine refers to it, and to a view of its tree."""

    class Knowing(ManualEngine):
        cache: PrefixCache
        tree: _core.Tree

    engine = Knowing()
    config = CacheConfig(
        device_slots=Counts(full=4), host_slots=Counts(full=4), write_policy="write_through"
    )
    engine.cache = new_cache(config, engine)
    engine.tree = engine.cache.tree
    gone = weakref.ref(engine.cache)
    del engine
    gc.collect()
    assert gone() is None


def test_the_core_has_the_enums_of_spec() -> None:
    """Core and spec have the same members; of media the core has those with pools."""
    assert set(codes.COMPONENTS) == set(Component)
    assert set(codes.MEDIA) == {GPU, CPU}
    assert set(codes.DIRECTIONS) == set(Direction)
    assert set(codes.STATUSES) == set(TransferStatus)
    assert set(codes.WRITE_POLICIES) == set(WritePolicy)
    assert set(codes.EVICTION_POLICIES) == set(EvictionPolicy)
    checked = {"Component", "Medium", "Direction", "TransferStatus", "WritePolicy"}
    checked |= {"EvictionPolicy", "LoadDecision", "EventKind"}
    assert set(_core.ENUMS) == checked


def test_a_core_with_other_members_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The import fails where core and spec differ, and the error line says what to do."""
    monkeypatch.setitem(_core.ENUMS, "Component", ("full", "swa"))
    source = Path(codes.__file__).read_text(encoding="utf-8")
    with pytest.raises(
        ImportError, match=r"has Component full, swa, and kvcanon\.spec has full, m"
    ):
        exec(compile(source, "codes.py", "exec"), {"__name__": "codes"})  # noqa: S102 # Ours.
