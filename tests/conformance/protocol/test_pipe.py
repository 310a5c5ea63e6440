"""Caches in child processes are judged as any other, and their errors are reported in one line."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import cast

import pytest
from attrs import astuple

from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.result import Grounds, Tally
from kvcanon.conformance.errors import ChildSilent, UsageError
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.conformance.protocol import pipe
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, make_subject
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.protocol.pipe import ChildDied, ChildFailed, ChildUnclear, pipe_adapter
from kvcanon.conformance.workers.allowance import VARIABLE
from kvcanon.reference import ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, OutOfSlots, PrefixNotCached
from kvcanon.spec.types import Counts, make_key
from paths import HELPERS

CONFIG = CacheConfig(device_slots=Counts(full=8))
REFERENCE = Adapter("reference", ReferenceCache)
HELLO = '{"protocol": "kvcanon-pipe/1", "name": "mine", "operations": %s}'
ESSENTIAL = '["match", "lock", "unlock", "allocate", "free", "insert"]'


def serving(name: str) -> str:
    """Return the command that serves a Python cache over a pipe."""
    return shlex.join([sys.executable, "-m", "kvcanon.conformance.protocol.pipe_server", name])


def child(folder: Path, body: str, hello: str = HELLO % ESSENTIAL) -> str:
    """Return the command of a child that writes a hello, and answers each call by `body`."""
    script = folder / "child.py"
    script.write_text(
        "import json, os, sys, time\n"
        "def say(text):\n"
        "    print(text, flush=True)\n"
        f"say({hello!r})\n"
        "for line in sys.stdin:\n"
        "    call = json.loads(line)\n"
        "    if call['op'] == 'make':\n"
        "        say('{\"ok\": null}')\n"
        "        continue\n"
        f"    {body}\n",
        encoding="utf-8",
    )
    return shlex.join([sys.executable, str(script)])


def made(command: str) -> Cache:
    """Make a cache in a child."""
    return cast("Cache", pipe_adapter(command).make(CONFIG))


def test_reference_behind_a_pipe_keeps_every_law() -> None:
    """Values, refusals, snapshots and late copies pass the wire unchanged."""
    adapter, total = pipe_adapter(serving("reference")), Tally()
    assert (adapter.name, adapter.kind) == ("reference", CacheKind.TREE)
    for seed in range(12):
        found, tallies = play(draw_case(seed, adapter.offer), [adapter])
        assert not found, found[0].words
        total.add(tallies["reference"])
    for law_id in ("TREE-1", "EVENT-4", "DATA-1", "ASYNC-1", "REFUSE-1"):
        assert total.laws[law_id], law_id


@pytest.mark.nightly
def test_reference_behind_a_pipe_agrees_with_itself() -> None:
    """A cache answers the same over a pipe."""
    adapter = pipe_adapter(serving("reference"))
    for seed in range(5):
        found, _ = play(draw_case(seed, adapter.offer), [adapter], against=REFERENCE)
        assert not found, found[0].words


def test_cache_of_requests_behind_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request cache is served, and its hello has its kind."""
    monkeypatch.chdir(HELPERS)
    adapter = load_adapter(f"pipe:{serving('serving:ADAPTER')}")
    assert adapter.kind is CacheKind.REQUEST
    total = Tally()
    for seed in range(8):
        found, tallies = play(draw_case(seed, adapter.offer), [adapter])
        assert not found, found[0].words
        total.add(tallies["serving"])
    assert total.laws["MATCH-2"]
    assert total.laws["DATA-1"]


def test_refusals_come_over_the_wire() -> None:
    """A refusal arrives with its reason."""
    cache = made(serving("reference"))
    with pytest.raises(OutOfSlots) as refusal:
        cache.allocate(Counts(full=9))
    assert astuple(refusal.value) == ("full on GPU", 9, 8)
    with pytest.raises(PrefixNotCached):
        cache.lock(make_key([1], 1))
    with pytest.raises(BadArgument):
        cache.allocate(Counts(full=-1))


def test_configuration_that_a_child_does_not_offer(tmp_path: Path) -> None:
    """A child can refuse a configuration that it does not offer."""
    refused = '{"refused": {"kind": "BadArgument", "argument": "config", "problem": "is odd"}}'
    command = child(tmp_path, "pass")
    script = tmp_path / "child.py"
    script.write_text(script.read_text().replace('{"ok": null}', refused), encoding="utf-8")
    _, tallies = play(Case(CONFIG, (Action("serve"),)), [pipe_adapter(command)])
    assert tallies["mine"].unoffered == 1


def test_child_has_the_operations_that_it_says(tmp_path: Path) -> None:
    """A child's cache has the methods that its hello names, and no others."""
    subject = make_subject(pipe_adapter(child(tmp_path, "pass")), CONFIG)
    assert not subject.can
    assert subject.copies is None
    assert not hasattr(subject.cache, "snapshot")


def test_large_messages_pass() -> None:
    """Long calls and answers do not deadlock the judge and the child."""
    cache = made(serving("reference"))
    key = make_key(range(60_000), 1)
    assert cache.match(key).device_pages == 0
    with pytest.raises(PrefixNotCached):
        cache.lock(key)


def is_running(process_id: int) -> bool:
    """Whether a process with this id runs."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def test_silent_child_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that hangs is killed after the time limit."""
    monkeypatch.setenv(VARIABLE, "0.1")
    numbers = tmp_path / "numbers"
    body = f"open({str(numbers)!r}, 'a').write(f'{{os.getpid()}} '); time.sleep(60)"
    adapter = pipe_adapter(child(tmp_path, body))
    for _ in range(2):
        found, tallies = play(Case(CONFIG, (Action("serve"),)), [adapter])
        assert [each.name for each in found] == [ChildSilent.__name__]
        assert found[0].grounds is Grounds.CRASH
        assert (
            "was silent at match, no answer within 0.5 s in which it waited (5 times KVCANON"
            in found[0].text
        )
        assert tallies["mine"].cases == 1
    first, second = map(int, numbers.read_text().split())
    assert first != second
    assert not is_running(first)
    assert not is_running(second)


def test_dead_child_says_its_last_words(tmp_path: Path) -> None:
    """A child's last line on standard error is reported, and the next case has a new child."""
    body = "sys.stderr.write('Traceback\\nKeyError: 7\\n'); sys.stderr.flush(); os._exit(3)"
    adapter = pipe_adapter(child(tmp_path, body))
    for _ in range(2):
        cache = cast("Cache", adapter.make(CONFIG))
        with pytest.raises(ChildDied, match=r"died at match, exit code 3 \(KeyError: 7\)") as fault:
            cache.match(make_key([1], 1))
        assert "\n" not in str(fault.value)


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        ("nonsense", ChildUnclear, "is no object in JSON"),
        ("[1]", ChildUnclear, "is no object in JSON"),
        ('{"yes": 1}', ChildUnclear, "has no ok, refused or error"),
        ('{"ok": 7}', ChildUnclear, "7 is no object"),
        ('{"ok": {"prefix_pages": 1}}', ChildUnclear, "no Matched: it lacks device_pages, slots"),
        ('{"ok": {"prefix_pages": "1", "device_pages": 1}}', ChildUnclear, "it lacks slots"),
        ('{"refused": {"kind": "Tired"}}', ChildUnclear, "has no refusal of BadArgument"),
        ('{"error": "list index out of range"}', ChildFailed, "match: list index out of range"),
    ],
)
def test_unclear_answer_is_a_fault(
    tmp_path: Path, answer: str, kind: type[UsageError], said: str
) -> None:
    """A malformed answer is reported in one line."""
    cache = made(child(tmp_path, f"say({answer!r})"))
    with pytest.raises(kind) as fault:
        cache.match(make_key([1], 1))
    assert said in str(fault.value)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(
    ("hello", "said"),
    [
        ('{"protocol": "kvcanon-pipe/9"}', "speaks 'kvcanon-pipe/9'; this is kvcanon-pipe/1"),
        ("{}", "speaks None"),
        ('{"protocol": "kvcanon-pipe/1"}', "said no proper hello"),
        (HELLO % '["mtach"]', "operations that there are not: mtach"),
        ((HELLO % ESSENTIAL)[:-1] + ', "kind": "forest"}', "'forest' is none of tree, request"),
        ((HELLO % ESSENTIAL)[:-1] + ', "offers": {}}', "it has offers"),
        ("hello", "is no object in JSON"),
    ],
)
def test_improper_hello_is_a_fault(tmp_path: Path, hello: str, said: str) -> None:
    """A child with another protocol or a malformed hello is refused."""
    with pytest.raises(UsageError) as fault:
        pipe_adapter(child(tmp_path, "pass", hello))
    assert said in str(fault.value)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-program-anywhere", "cannot be started"),
        ("", "pipe: names no command"),
        ("'", "cannot be started: No closing quotation"),
        (shlex.join([sys.executable, "-c", "raise SystemExit(4)"]), "died at hello, exit code 4"),
    ],
)
def test_command_that_is_no_cache_is_a_fault(command: str, said: str) -> None:
    """A command that cannot be run is reported in one line."""
    with pytest.raises(UsageError, match=said):
        load_adapter(f"pipe:{command}")


def test_child_that_never_says_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that writes no hello is killed after the time limit."""
    monkeypatch.setenv(VARIABLE, "0.05")
    with pytest.raises(ChildSilent, match="silent at hello"):
        pipe_adapter(shlex.join([sys.executable, "-c", "input()"]))


def test_cache_is_gone_once_another_was_made() -> None:
    """A cache is refused once its child has made another."""
    adapter = pipe_adapter(serving("reference"))
    first, second = (cast("Cache", adapter.make(CONFIG)) for _ in range(2))
    assert second.match(make_key([1], 1)).prefix_pages == 0
    with pytest.raises(UsageError, match="made another cache since"):
        first.match(make_key([1], 1))


def test_fork_has_a_child_of_its_own() -> None:
    """After a fork, each process has its own child."""
    runner = pipe.Pipe(serving("reference"))
    runner.make(CONFIG)
    inherited = runner._child
    inherited.owner += 1
    runner.make(CONFIG)
    assert runner._child is not inherited
    inherited.owner -= 1


def test_what_a_served_cache_prints_is_no_answer(tmp_path: Path) -> None:
    """What a served cache prints does not reach the judge as an answer."""
    (tmp_path / "chatty.py").write_text(
        "from kvcanon.reference import ReferenceCache\n"
        "def make(config):\n"
        "    print('making one')\n"
        "    return ReferenceCache(config)\n",
        encoding="utf-8",
    )
    code = (
        f"import os; os.chdir({str(tmp_path)!r}); "
        "from kvcanon.conformance.protocol.pipe_server import main; main(['chatty:make'])"
    )
    cache = made(shlex.join([sys.executable, "-c", code]))
    assert cache.match(make_key([1], 1)).prefix_pages == 0


@pytest.mark.parametrize("arguments", [["nobody"], [], ["a", "b"]])
def test_serving_of_nothing_ends_in_one_line(arguments: list[str]) -> None:
    """A wrong name of a served cache is reported in one line."""
    command = shlex.join(
        [sys.executable, "-m", "kvcanon.conformance.protocol.pipe_server", *arguments]
    )
    with pytest.raises(ChildDied, match=r"exit code 2 \("):
        pipe_adapter(command)


def test_black_box_judges_behind_a_pipe() -> None:
    """A child with snapshots can be judged in black-box mode."""
    adapter = pipe_adapter(serving("reference"))
    found, tallies = play(draw_case(3, adapter.offer), [adapter], JudgeConfig(black_box=True))
    assert not found
    assert tallies["reference"].laws["MATCH-1"]
