"""The suite as users run it: by pytest, in their own folder, on their own cache.

Each run is a process of its own, because this one has imported and configured kvcanon.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.search.effort import EFFORTS, Effort
from kvcanon.conformance.suite.checks import Suite, check_cache, walk
from kvcanon.conformance.variants.override import Overrides, overriding
from kvcanon.reference import ReferenceCache, host_insert
from kvcanon.spec.law import LAWS
from paths import DOCS, HELPERS

THEIRS = '''
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.variants.override import overriding
from kvcanon.reference import ReferenceCache, host_insert
from kvcanon.spec.errors import BadArgument

silent = overriding(lambda patch: patch.setattr(host_insert, "emit_stored", lambda *_: None))

class Shy:
    """Shows neither its state nor events."""

    def __init__(self, config, engine=None):
        self.config, self._cache = config, ReferenceCache(config, engine)

    def __getattr__(self, name):
        if name in ("snapshot", "take_events"):
            raise AttributeError(name)
        return getattr(self._cache, name)

class Idle(Shy):
    """Shows little, and refuses every insert."""

    def insert(self, *_, **__):
        raise BadArgument("key", "is not liked")

class Down(ReferenceCache):
    """Fails at its very first operation, whichever it is."""

    def match(self, *_):
        raise ZeroDivisionError("down")

    lock = allocate = insert = evict = flush = take_events = reset = poll = free = match
    load_back = insert_host = evict_host = read = write = match
'''


def run(folder: Path, *arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    """Run the suite in a folder, without pytest's configuration of kvcanon."""
    (folder / "theirs.py").write_text(THEIRS, encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--pyargs")
    return subprocess.run(
        [*command, "kvcanon.conformance", *arguments],
        cwd=folder,
        env=env | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(HELPERS)},
        capture_output=True,
        text=True,
        check=False,
    )


def outcomes(report: Path) -> dict[str, str]:
    """The outcome of each test, with its message."""
    found = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314  # It is pytest's own.
        said = [*case.iter("failure"), *case.iter("error"), *case.iter("skipped")]
        found[case.attrib["name"]] = "".join(
            f"{each.tag}: {each.attrib['message']} {each.text}" for each in said
        )
    return found


SOME = "test_law or test_walk[0] or test_walk[1]"


def test_sound_cache_passes(tmp_path: Path) -> None:
    """The reference passes, and each law has a test."""
    done = run(tmp_path, "--kvcanon-cache", "reference", "-k", SOME, "--junitxml", "report.xml")
    assert done.returncode == 0, done.stdout
    assert "kvcanon: reference, effort quick, seed 0" in done.stdout
    found = outcomes(tmp_path / "report.xml")
    assert {f"test_law[{law_id}]" for law_id in LAWS} <= found.keys()
    assert not any(said.startswith("failure") for said in found.values())


def test_broken_law_is_named_the_same_every_time(tmp_path: Path) -> None:
    """A fault fails the same tests with the same words in every run, also in workers."""
    arguments = ("--kvcanon-cache", "theirs:silent", "--kvcanon-seed", "5")
    kept = ("-k", f"{SOME} or test_machine[0]", "--junitxml")
    first = run(tmp_path, *arguments, *kept, "one.xml", hash_seed="1")
    again = run(tmp_path, *arguments, *kept, "two.xml", "-n", "2", hash_seed="2")
    assert (first.returncode, again.returncode) == (1, 1), first.stdout + again.stdout
    found = outcomes(tmp_path / "one.xml")
    assert found == outcomes(tmp_path / "two.xml")
    assert "EVENT-10 media_of_operations" in found["test_law[EVENT-10]"]
    assert found["test_law[LOCK-2]"] == ""
    assert "found by: machine, seed" in found["test_machine[0]"]
    assert 'the case: {"config": {' in found["test_machine[0]"]
    assert "Traceback" not in first.stdout
    assert "def " not in first.stdout


def test_law_that_cannot_be_judged_is_skipped(tmp_path: Path) -> None:
    """A law that the cache cannot show is skipped, with the reason."""
    arguments = ("--kvcanon-cache", "theirs:Shy", "-k", "test_law", "--junitxml", "report.xml")
    assert run(tmp_path, *arguments).returncode == 0
    found = outcomes(tmp_path / "report.xml")
    assert "not offered: the cache has no snapshot" in found["test_law[TREE-1]"]
    assert found["test_law[MATCH-1]"] == ""


def test_cache_that_does_nothing_fails(tmp_path: Path) -> None:
    """A cache that refuses every insert fails the test of essentials."""
    options = ("-k", "essentials or law[MATCH-6]", "--junitxml", "report.xml")
    done = run(tmp_path, "--kvcanon-cache", "theirs:Idle", *options)
    assert done.returncode == 1
    found = outcomes(tmp_path / "report.xml")
    assert "NOT EXERCISED: insert was refused each of" in found["test_essentials"]
    assert "not exercised: never came up: an insert" in found["test_law[MATCH-6]"]
    done = run(tmp_path, "--kvcanon-cache", "reference", "-k", "essentials")
    assert done.returncode == 0


def test_broken_should_law_fails_only_a_strict_suite(tmp_path: Path) -> None:
    """A broken SHOULD law is an expected failure, and a failure with --kvcanon-strict."""
    (tmp_path / "thrift.py").write_text(
        "from kvcanon.spec.law import LAWS\n"
        "from should import SHOULD_ID, made\n"
        "from kvcanon.reference import ReferenceCache\n"
        "LAWS[SHOULD_ID] = made()\n"
    )
    arguments = ("--kvcanon-cache", "thrift:ReferenceCache", "-k", "law[THRIFT-1]", "-rx")
    done = run(tmp_path, *arguments)
    assert done.returncode == 0, done.stdout
    assert "1 xfailed" in done.stdout
    assert "SHOULD, not kept: " in done.stdout
    done = run(tmp_path, *arguments, "--kvcanon-strict")
    assert done.returncode == 1
    assert "THRIFT-1 thrifty" in done.stdout


def test_cache_of_which_nothing_is_judged_fails(tmp_path: Path) -> None:
    """A cache that crashes at its first call fails, as nothing was judged."""
    done = run(tmp_path, "--kvcanon-cache", "theirs:Down", "-k", "RES-1 or walk[1]")
    assert done.returncode == 1
    assert "nothing was judged" in done.stdout
    assert "ZeroDivisionError: down" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give --kvcanon-cache package.module:factory, or reference"),
        (("--kvcanon-cache", "nowhere:make"), "nowhere cannot be imported"),
        (("--kvcanon-cache", "theirs:nothing"), "theirs has no factory 'nothing'"),
        (("--kvcanon-cache", "reference", "--kvcanon-against", "no"), "no cache 'no'"),
    ],
)
def test_wrong_call_ends_with_one_line(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    """A wrong call ends with one line on stderr."""
    done = run(tmp_path, *arguments)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_plugin_imports_nothing_of_the_judge() -> None:
    """The pytest plugin imports neither the judge nor Hypothesis."""
    code = (
        "import sys, kvcanon.conformance.pytest_plugin;"
        "print(*[name for name in sys.modules if name.startswith(('hypothesis', 'kvcanon'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {
        "kvcanon",
        "kvcanon.conformance",
        "kvcanon.conformance.pytest_plugin",
    }


# `check_cache`.


def silent(patch: Overrides) -> None:
    """Emits no events for fetched pages."""
    patch.setattr(host_insert, "emit_stored", lambda *_: None)


def test_check_cache_raises_with_law_and_case() -> None:
    """`check_cache` raises with the law and the case."""
    with pytest.raises(AssertionError) as broken:
        check_cache(overriding(silent))
    assert "EVENT-10 media_of_operations" in str(broken.value)
    assert 'the case: {"config": {' in str(broken.value)


def test_check_cache_lets_a_sound_cache_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check_cache` passes for the reference, with a cache to agree with."""
    monkeypatch.setitem(EFFORTS, "quick", Effort("quick", 16, 1, 60))
    monkeypatch.setattr("kvcanon.conformance.suite.checks.MACHINE_CASES", 5)
    check_cache(Adapter("it", ReferenceCache), against=Adapter("reference", ReferenceCache))


def test_nothing_judged_is_not_a_pass() -> None:
    """A campaign without cases fails."""
    suite = Suite(Adapter("it", ReferenceCache), Effort("quick", 0, 0, 60))
    with pytest.raises(AssertionError, match="nothing was judged"):
        walk(suite, 0)


def test_page_shows_code_that_runs(tmp_path: Path) -> None:
    """The code on the page in the docs runs."""
    page = (DOCS / "pytest.md").read_text(encoding="utf-8")
    replay, one_line, by_hand = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    theirs = tmp_path / "my_package"
    theirs.mkdir()
    (theirs / "my_module.py").write_text(
        "from kvcanon.reference import ReferenceCache as make_cache", encoding="utf-8"
    )
    small = by_hand.replace("max_examples=500", "max_examples=5")
    (tmp_path / "test_theirs.py").write_text(f"{one_line}\n{small}", encoding="utf-8")
    (tmp_path / "conftest.py").write_text(
        "from kvcanon.conformance import suite\n"
        "from kvcanon.conformance.search.effort import EFFORTS, Effort\n"
        "suite.MACHINE_CASES = 3\n"
        "EFFORTS['quick'] = Effort('quick', 16, 1, 60)\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_theirs.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    subprocess.run([sys.executable, "-c", replay], check=True, cwd=tmp_path)
