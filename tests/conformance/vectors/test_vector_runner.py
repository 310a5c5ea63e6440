"""The runner in JavaScript plays the vectors without kvcanon, and fails a cache that is wrong."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvcanon.conformance.vectors import FOLDER, read_vectors
from paths import DOCS

RUNNER = DOCS / "examples" / "vectors" / "play_vectors.mjs"
SIMPLE = DOCS / "examples" / "adapters" / "simple_cache.mjs"
NODE = shutil.which("node")
SERVED = (sys.executable, "-m", "kvcanon.conformance.protocol.pipe_server")

needs_node = pytest.mark.skipif(NODE is None, reason="node, which runs the example, is not here")


def play(*command: str) -> tuple[int, list[str]]:
    """Run the runner on a cache; returns its exit code and the lines that it prints."""
    ran = subprocess.run(
        [str(NODE), str(RUNNER), str(FOLDER), *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ran.returncode, ran.stdout.splitlines()


def counted(line: str) -> dict[str, int]:
    """Return the numbers in the last line that the runner prints."""
    return {words: int(count) for count, words in (each.split(" ", 1) for each in line.split(", "))}


@needs_node
def test_the_simple_cache_passes() -> None:
    """The example cache passes, and the runner prints what docs/vectors.md shows."""
    code, lines = play(str(NODE), str(SIMPLE))
    assert code == 0
    assert sum(counted(lines[-1]).values()) == len(read_vectors())
    assert f"\n{lines[-1]}\n" in (DOCS / "vectors.md").read_text(encoding="utf-8")


@needs_node
def test_the_plain_cache_answers_everything_as_expected() -> None:
    """A vector can be played to its end without kvcanon's clients."""
    code, lines = play(*SERVED, "reference")
    assert (code, counted(lines[-1])["as expected"]) == (0, len(read_vectors()))


@needs_node
def test_the_variant_is_lawful() -> None:
    """A cache that uses its freedoms differs only where a mark applies to it."""
    code, lines = play(*SERVED, "variant")
    counts = counted(lines[-1])
    assert (code, counts["wrong"], counts["not offered"]) == (0, 0, 0)
    assert counts["lawfully otherwise"] > counts["as expected"] > 0


@needs_node
@pytest.mark.parametrize(
    ("good", "bad", "op"),
    [
        ('createHash("sha256").update(hash)', 'createHash("sha256")', "take_events"),
        ("free.push(...surplus)", "", "allocate"),
        ("const victim", "freed += 1; const victim", "evict"),
        ("events = [", "events = []; [", "take_events"),
    ],
)
def test_a_faulty_cache_fails(tmp_path: Path, good: str, bad: str, op: str) -> None:
    """For a faulty cache the runner prints the call that was answered wrongly, and exits with 1."""
    source = SIMPLE.read_text(encoding="utf-8")
    assert source.count(good) == 1
    faulty = tmp_path / "faulty_cache.mjs"
    faulty.write_text(source.replace(good, bad), encoding="utf-8")
    code, lines = play(str(NODE), str(faulty))
    assert code == 1
    assert counted(lines[-1])["wrong"] > 0
    assert any(each.startswith("  asked") and f'"op":"{op}"' in each for each in lines)


@needs_node
def test_a_cache_that_dies_fails(tmp_path: Path) -> None:
    """A cache that ends early does not pass."""
    dying = tmp_path / "dying_cache.mjs"
    dying.write_text(
        SIMPLE.read_text(encoding="utf-8").replace("match({ key }) {", "match() { process.exit(3);")
    )
    code, _ = play(str(NODE), str(dying))
    assert code not in (0, None)


@needs_node
def test_a_run_that_played_nothing_fails(tmp_path: Path) -> None:
    """An empty folder is no pass, and a call without a cache prints the usage."""
    command = [str(NODE), str(RUNNER), str(tmp_path), str(NODE), str(SIMPLE)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert "no vector of" in ran.stderr
    ran = subprocess.run(command[:3], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr[:6]) == (2, "usage:")
