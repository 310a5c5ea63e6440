"""The contracts of the oracle functions: each holds for drawn arguments, and is complete."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvcanon.spec import oracle
from kvcanon.spec.oracle.framing import frame
from kvcanon.spec.types import EvictionPolicy

Oracle = Callable[..., Any]


def oracles() -> list[Oracle]:
    """All public functions of the chapter."""
    return [
        function
        for found in pkgutil.iter_modules(oracle.__path__, f"{oracle.__name__}.")
        for module in [import_module(found.name)]
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    ]


def conditions(oracle: Oracle, kind: str) -> list[str]:
    """The lines of a contract that begin with `pre:` or `post:`."""
    lines = (inspect.getdoc(oracle) or "").splitlines()
    return [line.removeprefix(f"{kind}:").strip() for line in lines if line.startswith(f"{kind}:")]


def holds(oracle: Oracle, condition: str, values: dict[str, Any]) -> bool:
    """Whether a condition of an oracle's contract holds of its arguments (and `__return__`)."""
    return bool(eval(condition, {**oracle.__globals__, **values}))  # noqa: S307  Our own text.


FLAGS = st.lists(st.booleans(), max_size=6).map(tuple)
SMALL = st.integers(0, 20)
ARGUMENTS: dict[str, st.SearchStrategy[Any]] = {
    "asked": SMALL,
    "at": st.integers(0, 6),
    "backed": FLAGS,
    "capacity": st.integers(0, 4),
    "child_on_device": st.booleans(),
    "created": SMALL,
    "end_pages": SMALL,
    "field": st.none() | st.binary(max_size=2),
    "framed": st.lists(st.none() | st.binary(max_size=2), max_size=2).map(
        lambda fields: b"".join(frame(field) for field in fields)
    ),
    "free": SMALL,
    "freed": SMALL,
    "full": FLAGS,
    "ground": st.booleans(),
    "ground_refs": SMALL,
    "has_children": st.booleans(),
    "history": FLAGS,
    "hit_count": st.integers(0, 4),
    "is_last": st.booleans(),
    "items": FLAGS,
    "keys": st.lists(st.tuples(SMALL, SMALL), max_size=4).map(tuple),
    "largest": SMALL,
    "last_access": SMALL,
    "length_tokens": SMALL,
    "lengths": st.lists(st.integers(1, 8), max_size=4).map(tuple),
    "lock_refs": SMALL,
    "locked": st.booleans(),
    "lost": st.tuples(SMALL, SMALL, SMALL),
    "needed": SMALL,
    "needs_backed_parents": st.booleans(),
    "on_device": st.booleans(),
    "on_host": st.booleans(),
    "order": st.lists(SMALL, unique=True, max_size=5).map(tuple),
    "ours": st.lists(st.integers(0, 1), max_size=3).map(tuple),
    "owned": st.lists(st.integers(-1, 4), max_size=4).map(tuple),
    "page_size": st.integers(1, 8),
    "policy": st.sampled_from(EvictionPolicy),
    "present": st.booleans(),
    "priority": SMALL,
    "short": st.tuples(SMALL, SMALL, SMALL),
    "start": SMALL,
    "state": FLAGS,
    "swa": FLAGS,
    "theirs": st.lists(st.integers(0, 1), max_size=3).map(tuple),
    "there": st.booleans(),
    "touched": st.lists(SMALL, unique=True, max_size=3).map(tuple),
    "window": st.integers(1, 16),
    "window_from": SMALL,
    "window_tokens": st.integers(1, 20),
}


@pytest.mark.parametrize("oracle", oracles(), ids=lambda oracle: oracle.__name__)
@given(data=st.data())
def test_contract_holds(data: st.DataObject, oracle: Oracle) -> None:
    """What an oracle function returns fulfils its own contract."""
    names = list(inspect.signature(oracle).parameters)
    values = {name: data.draw(ARGUMENTS[name], label=name) for name in names}
    if "full" in values and "lengths" in values:
        count = len(values["lengths"])
        columns = {n: (*values[n], *[True] * count)[:count] for n in ("full", "swa", "state")}
        values |= columns
    assume(all(holds(oracle, condition, values) for condition in conditions(oracle, "pre")))
    values["__return__"] = oracle(**values)
    for condition in conditions(oracle, "post"):
        assert holds(oracle, condition, values), condition


@pytest.mark.parametrize("oracle", oracles(), ids=lambda oracle: oracle.__name__)
def test_every_oracle_has_a_contract(oracle: Oracle) -> None:
    """Every oracle function has a contract that a prover can check."""
    assert conditions(oracle, "post")
    parameters = inspect.signature(oracle).parameters
    assert all(any(name in each for name in parameters) for each in conditions(oracle, "pre"))
    for name, parameter in parameters.items():
        # A solver can do without the bounds of a number, but not without those of a length.
        if parameter.annotation.startswith(("tuple", "bytes", "Sequence")):
            assert any(name in each for each in conditions(oracle, "pre")), name
