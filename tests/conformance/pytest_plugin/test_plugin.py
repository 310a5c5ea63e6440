"""The suite as users run it: by pytest, in their own folder, on their own cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.spec.law import LAWS
from nights import at_night
from suite_runs import outcomes, run

THEIRS = '''
from kvcanon.lab.variants.override import overriding
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

    lock = allocate = insert = evict = flush = reset = poll = free = match
    load_back = insert_host = evict_host = read = write = match
'''

OTHERS = ("test_agreement", "test_crash", "test_essentials", "test_complete")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """The folder of somebody's caches."""
    (tmp_path / "theirs.py").write_text(THEIRS, encoding="utf-8")
    return tmp_path


def test_sound_cache_passes(theirs: Path) -> None:
    """The reference passes, and each law has a test."""
    done = run(theirs, "--kvcanon-cache", "reference", "--junitxml", "report.xml")
    assert done.returncode == 0, done.stdout
    assert "kvcanon: reference, effort quick, seed 0" in done.stdout
    assert "No law is broken. " in done.stdout
    found = outcomes(theirs / "report.xml")
    laws = {f"test_law[{law_id}]" for law_id in LAWS}
    assert found.keys() == {*laws, *OTHERS}


def test_broken_law_is_named_with_its_sentence_and_script(theirs: Path) -> None:
    """A broken law fails its test; its name and sentence stand in the message and the summary."""
    chosen = ("-k", "EVENT-10 or LOCK-2")
    done = run(theirs, "--kvcanon-cache", "theirs:silent", *chosen, "--junitxml", "report.xml")
    assert done.returncode == 1, done.stdout
    others = len(LAWS) + len(OTHERS) - 2
    assert f"1 failed, 1 passed, {others} deselected" in done.stdout
    said = outcomes(theirs / "report.xml")["test_law[EVENT-10]"]
    assert "EVENT-10 media_of_operations: " in said.splitlines()[0]
    assert 'with judged(\n    "theirs:silent"' in said
    summary = done.stdout.partition("= kvcanon =")[2].partition("\n===")[0].splitlines()
    (line,) = (each for each in summary if each.startswith("EVENT-10 "))
    assert line in said
    assert "Traceback" not in done.stdout
    assert "def " not in done.stdout


@pytest.mark.nightly
def test_workers_show_the_check_of_the_controller(theirs: Path) -> None:
    """With pytest-xdist there is one check, and the same outcomes as in one process."""
    arguments = ("--kvcanon-cache", "theirs:silent", "--kvcanon-seed", "5", "--junitxml")
    first = run(theirs, *arguments, "one.xml")
    again = run(theirs, *arguments, "two.xml", "-n", "2")
    assert (first.returncode, again.returncode) == (1, 1), first.stdout + again.stdout
    assert outcomes(theirs / "one.xml") == outcomes(theirs / "two.xml")
    for done in (first, again):
        assert done.stdout.count("kvcanon: the check runs") == 1
        assert done.stdout.count("\nBROKEN (sound): ") == 1


def test_check_runs_only_for_its_tests(theirs: Path) -> None:
    """No check runs if none of its tests was selected, or if tests are only collected."""
    (theirs / "test_mine.py").write_text("def test_mine(): pass\n", encoding="utf-8")
    cache = ("--kvcanon-cache", "theirs:silent")
    for more in (
        ("-k", "mine", "test_mine.py"),
        ("--collect-only",),
        ("-n1", "-k", "mine", "test_mine.py"),
    ):
        done = run(theirs, *cache, *more)
        assert done.returncode == 0, done.stdout
        assert "the check runs" not in done.stdout
        assert "BROKEN" not in done.stdout


@pytest.mark.parametrize(
    ("cache", "code", "expected"),
    [
        (
            "Shy",
            0,
            {
                "law[TREE-1]": "not exercised: not offered: the cache has no snapshot",
                "law[MATCH-1]": "",
            },
        ),
        (
            "Idle",
            1,
            {
                "essentials": "essentials came up: insert was refused each of",
                "law[MATCH-6]": "not exercised: never came up: an insert",
            },
        ),
        *at_night(("Down", 1, {"crash": "ZeroDivisionError: down"})),
    ],
)
def test_what_is_of_no_broken_law_is_said_by_its_test(
    theirs: Path, cache: str, code: int, expected: dict[str, str]
) -> None:
    """A law that cannot be judged is skipped, with the reason; a lack or a crash fails its test."""
    done = run(theirs, "--kvcanon-cache", f"theirs:{cache}", "--junitxml", "report.xml")
    assert done.returncode == code
    found = outcomes(theirs / "report.xml")
    for name, words in expected.items():
        assert words in found[f"test_{name}"]
        assert bool(found[f"test_{name}"]) is bool(words)


@pytest.mark.nightly
def test_broken_should_law_fails_only_a_strict_suite(theirs: Path) -> None:
    """A broken SHOULD law is an expected failure, and a failure with --kvcanon-strict."""
    (theirs / "thrift.py").write_text(
        "from kvcanon.spec.law import LAWS\n"
        "from should import SHOULD_ID, made\n"
        "from kvcanon.reference import ReferenceCache\n"
        "LAWS[SHOULD_ID] = made()\n"
    )
    arguments = ("--kvcanon-cache", "thrift:ReferenceCache", "--kvcanon-jobs", "1")
    chosen = ("-k", "law[THRIFT-1]", "-rx")
    done = run(theirs, *arguments, *chosen)
    assert done.returncode == 0, done.stdout
    assert "1 xfailed" in done.stdout
    assert "THRIFT-1 thrifty: SHOULD, not kept: " in done.stdout
    done = run(theirs, *arguments, *chosen, "--kvcanon-strict")
    assert done.returncode == 1
    assert "THRIFT-1 thrifty" in done.stdout


@pytest.mark.parametrize(
    "workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.nightly)], ids=["one", "two"]
)
def test_cache_that_cannot_be_judged_ends_with_one_line(
    theirs: Path, workers: tuple[str, ...]
) -> None:
    """A check that cannot be made ends the session with one line, also with workers."""
    (theirs / "never.py").write_text(
        "from kvcanon.spec.errors import BadArgument\n"
        "def make(config):\n    raise BadArgument('config', 'is not liked')\n"
    )
    done = run(theirs, "--kvcanon-cache", "never:make", *workers)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("ERROR: kvcanon: never:make offers none of 200 drawn configurations (")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give --kvcanon-cache package.module:factory, or reference"),
        (("--kvcanon-cache", "nowhere:make"), "nowhere cannot be imported"),
        (("--kvcanon-cache", "theirs:nothing"), "theirs has no factory 'nothing'"),
        (("--kvcanon-cache", "reference", "--kvcanon-against", "no"), "no cache 'no'"),
        (("--kvcanon-cache", "reference", "--kvcanon-known", "no.toml"), "no.toml"),
    ],
)
def test_wrong_call_ends_with_one_line(theirs: Path, arguments: tuple[str, ...], said: str) -> None:
    """A wrong call ends with one line on stderr."""
    done = run(theirs, *arguments)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "value"), [("seed", "-1"), ("seed", "x"), ("jobs", "0"), ("effort", "huge")]
)
def test_wrong_value_of_an_option_is_refused(theirs: Path, option: str, value: str) -> None:
    """A wrong value of an option is a usage error that names the option and the value."""
    done = run(theirs, "--kvcanon-cache", "reference", f"--kvcanon-{option}={value}")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"--kvcanon-{option}: " in done.stderr
    assert repr(value) in done.stderr


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
