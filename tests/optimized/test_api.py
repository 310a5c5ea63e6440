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

import kvcanon.optimized
from array_api import new_cache
from kvcanon.optimized import PrefixCache, _core, codes
from kvcanon.reference.engine import ManualEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import CPU, GPU, Component, Counts, EvictionPolicy, WritePolicy

STUB_CLASSES = {
    each.name: each
    for stub in ("_core.pyi", "_core_results.pyi", "_core_nodes.pyi")
    for each in ast.parse(
        Path(kvcanon.optimized.__file__).with_name(stub).read_text(encoding="utf-8")
    ).body
    if isinstance(each, ast.ClassDef)
}
SHOWN = (
    *("Matched", "Inserted", "LoadedBack", "HostSlots", "Event", "CacheCore", "Tree"),
    *("Nodes", "Rows", "RowTable"),
)
NAMED_TUPLES = ("NodeMatched", "NodeInserted", "EvictStep")
PUBLIC = sorted(name for name in dir(PrefixCache) if not name.startswith("_"))
NATIVE = sorted(name for name in dir(_core.CacheCore) if not name.startswith("_"))
SIGNED = [("CacheCore", name) for name in NATIVE] + [
    ("Nodes", name) for name in dir(_core.Nodes) if not name.startswith("_")
]


def stub_methods(name: str) -> list[ast.FunctionDef]:
    """The methods that the stub declares for a class, without those of operators."""
    body = STUB_CLASSES[name].body
    return [e for e in body if isinstance(e, ast.FunctionDef) and not e.name.startswith("__")]


def native_doc(owner: str, name: str) -> tuple[str, str]:
    """The signature and the docstring of a native method or property, as Python has them."""
    member = getattr(getattr(_core, owner), name)
    if isinstance(member, property):
        return "", member.__doc__ or ""
    signature, _, text = (member.__doc__ or "").partition("\n\n")
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
        signature, text = native_doc("CacheCore", name)
        assert signature.startswith(f"{name}(self")
        assert text


@pytest.mark.parametrize("name", NATIVE)
def test_a_native_method_is_called_without_a_python_frame(name: str) -> None:
    """`PrefixCache` has the native method itself."""
    assert getattr(PrefixCache, name) is getattr(_core.CacheCore, name)


@pytest.mark.parametrize("owner", SHOWN)
def test_the_stub_has_the_docstrings_of_the_core(owner: str) -> None:
    """Classes, methods and properties have the same docstring in the stub and at run time."""
    assert inspect.getdoc(getattr(_core, owner)) == ast.get_docstring(STUB_CLASSES[owner])
    declared = {each.name: each for each in stub_methods(owner)}
    members = vars(getattr(_core, owner))
    own = {name for name in members if not name.startswith("__")}
    assert own == set(declared)
    for name, stub in declared.items():
        assert native_doc(owner, name)[1] == ast.get_docstring(stub), name


@pytest.mark.parametrize("owner", NAMED_TUPLES)
def test_the_stub_has_the_fields_of_a_result(owner: str) -> None:
    """A tuple with named fields has the same ones, and their docs, in the stub and at run time."""
    stub, made = STUB_CLASSES[owner], getattr(_core, owner)
    assert inspect.getdoc(made) == ast.get_docstring(stub)
    fields = [each.target.id for each in stub.body if isinstance(each, ast.AnnAssign)]  # type: ignore[union-attr] # A name.
    docs = [ast.literal_eval(each.value) for each in stub.body if isinstance(each, ast.Expr)][1:]
    assert made.__match_args__ == tuple(fields)
    assert [inspect.getdoc(vars(made)[name]) for name in fields] == docs


@pytest.mark.parametrize(("owner", "name"), SIGNED)
def test_the_stub_has_the_signatures_of_the_core(owner: str, name: str) -> None:
    """A public method has the same parameters and result in the stub and at run time."""
    stub = next(each for each in stub_methods(owner) if each.name == name)
    shown = ast.parse(f"def {native_doc(owner, name)[0]}: ...").body[0]
    assert isinstance(shown, ast.FunctionDef)
    assert ast.dump(shown.args) == ast.dump(stub.args)
    assert shown.returns is not None
    assert stub.returns is not None
    assert ast.dump(shown.returns) == ast.dump(stub.returns)


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
