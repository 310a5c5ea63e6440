"""The page about adapters: its snippets run, its pipe dialogue is real, its tables are complete."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest

from adapter_page import PAGE, TABLES
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.result import Tally
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.conformance.protocol import request, tree
from kvcanon.conformance.protocol.adapter import OF_REQUESTS, Adapter, Capability
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.protocol.pipe import Hello
from kvcanon.conformance.protocol.wire import CALLS, REFUSALS, decoder, from_json, refusal_from_json
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.transfer import TransferEngine
from paths import DOCS

EXAMPLES = DOCS / "examples" / "adapters"
SNIPPETS = re.findall(r"^```python\n(.+?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TALK = [
    (who, json.loads(line))
    for who, line in re.findall(r"^(judge|child)> (.+)$", PAGE, re.MULTILINE)
]
CALLS_OF = [name for name in TABLES if name.startswith("operation | takes")]
ROWS = {row[0].strip("`"): row for name in CALLS_OF for row in TABLES[name]}
NODE = shutil.which("node")
BLACK_BOX = JudgeConfig(black_box=True)


@pytest.fixture(name="_examples")
def in_folder_of_examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Works from the folder of the examples, as the page says."""
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES)
    yield
    for path in EXAMPLES.glob("*.py"):
        sys.modules.pop(path.stem, None)


def run(snippet: str) -> dict[str, object]:
    """What a snippet defines."""
    names: dict[str, object] = {"__name__": "snippet"}
    exec(compile(snippet, "adapters.md", "exec"), names)  # noqa: S102 # The page is ours.
    return names


@pytest.mark.usefixtures("_examples")
def test_first_snippet_judges(capsys: pytest.CaptureFixture[str]) -> None:
    """The first snippet of the page judges a cache and finds nothing."""
    run(SNIPPETS[0])
    assert capsys.readouterr().out == "0 findings; judged\n"


def test_second_snippet_breaks_the_law_that_the_page_says() -> None:
    """The cache of requests on the page breaks the law that the page names, and no other."""
    adapter = run(SNIPPETS[1])["ADAPTER"]
    assert isinstance(adapter, Adapter)
    spoken = set[str]()
    for seed in range(100):
        found, _ = play(draw_case(seed, adapter.offer), [adapter])
        spoken.update(each.name for each in found)
    assert spoken == {"MATCH-6"}
    assert "breaks a law, MATCH-6" in PAGE


def test_there_are_snippets_and_a_talk() -> None:
    """The page has two snippets and thirteen lines of dialogue."""
    assert len(SNIPPETS) == 2
    assert len(TALK) == 13


@pytest.mark.usefixtures("_examples")
def test_commands_name_caches_that_there_are() -> None:
    """Each `kvcanon check` of the page names a cache that loads."""
    names = re.findall(r"^kvcanon check (\S+)$", PAGE, re.MULTILINE)
    names += re.findall(r"`kvcanon check (\S+)`", PAGE)
    assert [load_adapter(name).name for name in names] == [
        "simple",
        "their radix cache",
        "their window tree",
        "their block manager",
    ]


def test_talk_is_of_values_of_the_protocol() -> None:
    """Each line of the dialogue is a call or an answer of the protocol."""
    assert from_json(Hello, TALK[0][1]).name == "simple in JavaScript"
    talk = iter(TALK[1:])
    for (asker, call), (answerer, answer) in zip(talk, talk, strict=True):
        assert (asker, answerer) == ("judge", "child")
        name, given = call["op"], {each: value for each, value in call.items() if each != "op"}
        takes = {"config": CacheConfig} if name == "make" else CALLS[name].takes
        # No other cache than one that offers it is given the pages of states.
        assert list(given) == [each for each in takes if each != "state_pages"]
        for each, value in given.items():
            assert decoder(takes[each])(value) is not None
        if "refused" in answer:
            assert str(refusal_from_json(answer["refused"]))
        else:
            decoder(None if name == "make" else CALLS[name].answers)(answer["ok"])


@pytest.mark.skipif(
    shutil.which("node") is None, reason="node, which runs the example, is not here"
)
def test_talk_is_what_the_example_says() -> None:
    """The example answers the calls of the dialogue as the page shows."""
    asked = "".join(json.dumps(line) + "\n" for who, line in TALK if who == "judge")
    command = [str(NODE), str(EXAMPLES / "simple_cache.mjs")]
    said = subprocess.run(command, input=asked, capture_output=True, text=True, check=True).stdout
    answers = [json.loads(line) for line in said.splitlines()]
    assert answers == [line for who, line in TALK if who == "child"]


def test_tables_have_every_operation() -> None:
    """The tables list each operation, with its arguments in their order."""
    operations = {*tree.ESSENTIAL, *request.ESSENTIAL, *(each.value for each in Capability)}
    assert set(ROWS) == operations
    for name, (_, takes, *_) in ROWS.items():
        told = [each for each in CALLS[name].takes if each in takes]
        assert told == list(CALLS[name].takes), name
    optional = re.search(r"It may have (.+?) besides", PAGE, re.DOTALL)
    assert optional is not None
    assert set(re.findall(r"`(\w+)`", optional[1])) == set(OF_REQUESTS)


def test_refusals_of_the_tables_are_those_of_the_protocol() -> None:
    """The tables list the errors of each operation that `spec/cache.py` lists."""
    protocol = (DOCS.parent / "spec" / "cache.py").read_text(encoding="utf-8")
    for name in [*tree.ESSENTIAL, *Capability]:
        body = re.search(rf"    def {name}\(.+?\"\"\"(.+?)\"\"\"", protocol, re.DOTALL)
        assert body is not None
        raised = {each for each in REFUSALS if each in body[1]}
        assert raised == {each for each in REFUSALS if each in ROWS[name][3]}, name


class Alone(ReferenceCache):
    """A cache that is no rank, so that it need not settle by name."""

    def __init__(self, config: CacheConfig, engine: TransferEngine | None = None) -> None:
        super().__init__(config, engine)


@cache
def laws_exercised(methods: frozenset[str]) -> frozenset[str]:
    """The laws exercised from outside on a cache that has these methods besides the six."""
    lacking = {each.value for each in Capability} - methods
    make = type("Fewer", (Alone,), dict.fromkeys(lacking))
    adapter, total = Adapter("fewer", make), Tally()
    for seed in range(60):
        _, tallies = play(draw_case(seed, adapter.offer), [adapter], BLACK_BOX)
        total.add(tallies["fewer"])
    return frozenset(total.laws)


@pytest.mark.parametrize("name", [each for each in Capability if re.search(r"\d", ROWS[each][-1])])
def test_capability_opens_the_laws_that_the_page_says(name: str) -> None:
    """A method opens exactly the laws that the page says."""
    opened = set(re.findall(r"[A-Z]+-\d+", ROWS[name][-1]))
    with_others = frozenset(re.findall(r"`(\w+)`", ROWS[name][-1]))
    assert opened <= laws_exercised(with_others | {name})
    assert not opened & laws_exercised(with_others)
