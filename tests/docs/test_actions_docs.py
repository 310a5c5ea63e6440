"""The table of actions in the docs is what the code does, in its words."""

from __future__ import annotations

from collections.abc import Callable

from kvcanon.conformance.cases import request_client
from kvcanon.conformance.cases.actions import ACTIONS, UNDRAWN
from kvcanon.conformance.cases.exact_actions import EXACT
from kvcanon.conformance.cases.exact_store_actions import EXACT_STORES
from paths import DOCS


def first_sentence(do: Callable[..., object]) -> str:
    """The first line of a docstring."""
    return (do.__doc__ or "").splitlines()[0]


def test_tables_have_every_action() -> None:
    """Each action has a row with the first sentences of its docstrings; there is no other."""
    page = (DOCS / "actions.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    by_requests = {name: first_sentence(do) for name, (do, _) in request_client.ACTIONS.items()}
    every = {
        **ACTIONS,
        **{name: kind for name, kind in UNDRAWN.items() if name not in EXACT | EXACT_STORES},
    }
    assert rows == [
        f"| `{name}` | {first_sentence(kind.do)} | {by_requests.get(name, 'nothing')} |"
        for name, kind in every.items()
    ]
    assert by_requests.keys() <= every.keys()
