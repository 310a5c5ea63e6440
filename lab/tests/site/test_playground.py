"""The playground without a browser: what Python plays there, and what the page is made of."""

from __future__ import annotations

import json
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from kvcanon.conformance.cases.case import Action
from kvcanon.conformance.cases.exact_actions import exact_action
from kvcanon.conformance.check.play import play
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.conformance.vectors import vector_from_json
from kvcanon.lab.mutants.faulty import mutated
from kvcanon.lab.site.playground import session
from kvcanon.lab.site.playground.bundle import PAGE, TARBALL, WITHOUT, sources, write_playground
from nights import at_night
from paths import ROOT

SMALL = {"device_slots": {"full": 6}}
UNSHOWN = {"states_are_not_copied"}
"""A fault that no single vector shows."""
INSERT = exact_action("insert_exactly", [0, 1])
MATCH = exact_action("match_exactly", [0, 1, 2])


def asked(*actions: Action, fault: str = "", **config: Any) -> str:  # noqa: ANN401  # Fields of JSON.
    """A case as the page asks for it."""
    case = {"config": {**SMALL, **config}, "actions": actions, "drain": [], "fault": fault}
    return json.dumps(case)


def shown(text: str) -> dict[str, Any]:
    """What the page gets for a case."""
    answer: dict[str, Any] = json.loads(session.show(text))
    return answer


def test_a_case_goes_on_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a case that grows, the new call alone is played, and all calls are shown."""
    played = list[Action]()
    usual = session.Game.act

    def noted(game: session.Game, action: Action) -> None:
        played.append(action)
        usual(game, action)

    monkeypatch.setattr(session.Game, "act", noted)
    assert shown(asked(INSERT))["played"] == 1
    longer = shown(asked(INSERT, MATCH))
    assert (longer["played"], longer["broken"], played) == (2, [], [INSERT, MATCH])
    # A call that is taken back makes another case, and so does another cache.
    alone = shown(asked(INSERT))
    assert played == [INSERT, MATCH, INSERT]
    assert alone["parts"] != longer["parts"]
    shown(asked(INSERT, page_size=2))
    assert played[3:] == [INSERT]


BY_DAY = [name for at, name in enumerate(session.FAULTS) if at % 20 == 0]


@pytest.mark.parametrize(
    "fault", [*BY_DAY, *at_night(*[each for each in session.FAULTS if each not in BY_DAY])]
)
def test_a_fault_shows_in_its_case(fault: str) -> None:
    """Each fault has a case in which a law breaks, which a sound cache plays without a fault."""
    case = json.loads(session.example(fault))
    if fault in UNSHOWN:
        assert case == {"error": f"no vector shows {fault}"}
        return
    broken = shown(json.dumps(case))["broken"]
    assert broken
    assert shown(json.dumps({**case, "fault": ""}))["broken"] == []
    # Saved, it is a vector that finds the fault, and no other.
    made = json.loads(session.vector(json.dumps(case)))
    vector = vector_from_json(made["name"].removesuffix(".json"), made["text"])
    found = [play(vector.case, [each])[0] for each in (mutated(session.FAULTS[fault]), REFERENCE)]
    assert [bool(each) for each in found] == [True, False]


def test_after_a_broken_law_nothing_is_played() -> None:
    """Calls that follow a broken law are no part of the case."""
    case = json.loads(session.example("refusal_evicts"))
    actions = [*case["actions"], *[list(MATCH)] * 3]
    longer = shown(json.dumps({**case, "actions": actions, "drain": []}))
    assert longer["broken"]
    assert longer["played"] <= len(case["actions"])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"fault": "no_such_fault"}, "'no_such_fault' is not planted here"),
        ({"actions": [["dance", 1]]}, "'dance' is no action"),
        ({"actions": [["match_exactly", 1, 2, 3, 4]]}, "is not a name and up to three picks"),
        ({"actions": [list(MATCH)] * 201}, "are 201; at most 200 are played"),
        ({"config": {"page_size": 0}}, "page_size"),
        ({"config": {"pages": 1}}, "has pages, which no config has"),
        ({"config": {"device_slots": {"none": 1}}}, "none"),
        ({"config": {"device_slots": {"full": 10**9}}}, "are at most 4096 in a pool here"),
        ({"moves": []}, "has moves, which no case has"),
    ],
)
def test_a_case_that_cannot_be_played_is_refused(wrong: dict[str, Any], says: str) -> None:
    """What an address or a form may hold gets one line that says what is wrong."""
    case = {**json.loads(asked(INSERT)), **wrong}
    answer = shown(json.dumps(case))
    assert set(answer) == {"error"}
    assert says in answer["error"]


def test_a_case_that_breaks_nothing_is_no_vector() -> None:
    """A vector is of the law that breaks."""
    assert "no law is broken" in json.loads(session.vector(asked(INSERT)))["error"]


def test_the_sources_are_all_that_a_session_needs(tmp_path: Path) -> None:
    """Python finds everything in the zip file of the page, and the file is the same each time."""
    packed = sources()
    assert sources() == packed
    with ZipFile(BytesIO(packed)) as archive:
        archive.extractall(tmp_path)
    program = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}]\n"
        "import json\n"
        "from kvcanon.lab.site.playground import session as s\n"
        "import kvcanon; assert kvcanon.__file__.startswith(sys.path[0]), kvcanon.__file__\n"
        "case = s.example('refusal_evicts')\n"
        "assert json.loads(s.show(case))['broken'] and 'text' in json.loads(s.vector(case))\n"
        "print(len(json.loads(s.faults())))\n"
    )
    # Without the packages of this environment: neither kvcanon nor attrs is found elsewhere.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert int(done.stdout) == len(session.FAULTS)


def test_without_pyodide_the_page_says_so(tmp_path: Path) -> None:
    """A site that is built without Python for the browser has a page that says how to get it."""
    write_playground(tmp_path, tmp_path / "play")
    assert WITHOUT in (tmp_path / "play" / PAGE).read_text("utf-8")


def test_another_package_is_refused(tmp_path: Path) -> None:
    """A file that is not the pinned package is not put on the site."""
    (tmp_path / TARBALL).parent.mkdir(parents=True)
    (tmp_path / TARBALL).write_bytes(b"another")
    with pytest.raises(UsageError, match=r"is not Pyodide .* run `make playground` again"):
        write_playground(tmp_path, tmp_path / "play")


@pytest.mark.parametrize("file", ["Makefile", ".github/workflows/site.yml"])
def test_the_package_that_is_brought_is_the_one_that_is_expected(file: str) -> None:
    """`make playground` and the workflow of the site bring the pinned package."""
    assert str(TARBALL) in (ROOT / file).read_text("utf-8")


def test_a_browser_has_every_module_that_the_page_imports() -> None:
    """The page imports nothing that its Python lacks: no processes, and no limits of them."""
    code = f"import sys, {session.__name__}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"resource", "kvcanon.conformance.workers.worker"} & {*done.stdout.split()}
