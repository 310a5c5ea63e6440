"""The disk tier under SGLang's own classes, in the environment of SGLang 0.5.23."""

from __future__ import annotations

import json
from typing import Any

import pytest

from in_peer import run_in
from paths import ROOT

SESSION = ROOT / "tests/disk/sglang_session.py"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a session came to."""
    folder = tmp_path_factory.mktemp("sglang-disk")
    done = run_in("sglang==0.5.23", "-W", "ignore", str(SESSION), str(folder))
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("layout", ["layer_first", "page_first", "page_first_direct"])
def test_pages_move_between_host_pool_and_disk(session: dict[str, Any], layout: str) -> None:
    """Written from the slots of the pool, and read into them after a restart."""
    assert session["moved"][layout] == {
        "written": True,
        "run": 300,
        "read": True,
        "equal": True,
        "missing": [False],
        "cleared": 0,
        "sampled": 2,
        "after close": [False],
    }


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("option", "no option 'sise_gb'"),
        ("size", 'needs a "folder" and a "size_gb" of more than 0'),
        ("folder", 'needs a "folder" and a "size_gb"'),
        ("interface", 'needs "interface_v1": 1'),
        ("layout", "does not serve the host layout page_head; choose one of layer_first"),
        ("pool", "has a pool swa; start it without --hicache-storage-backend"),
        ("mla", "does not serve MLA models on several tensor-parallel ranks"),
    ],
)
def test_what_is_not_served_is_refused_with_one_sentence(
    session: dict[str, Any], what: str, words: str
) -> None:
    """The sentence names what is wrong, and what to do."""
    assert words in session["refused"][what]
    assert not session["refused"]["own pool"]


@pytest.mark.nightly
def test_an_update_of_weights_closes_the_store(session: dict[str, Any]) -> None:
    """Pages of other weights are neither read nor written, until the weights are named."""
    updated = dict(session["updated"])
    assert "were updated since its start" in updated.pop("attach")
    assert updated == {
        "before": [True],
        "after": [False],
        "exists": 0,
        "put": [False],
        "attach with a name": "",
    }
