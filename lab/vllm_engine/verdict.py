"""Starts engines, each in a process of vLLM's environment, and compares what they answered."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import xxhash
from attrs import asdict, evolve, frozen

import kvcanon
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.releases.environment import Peer
from kvcanon.lab.servers.server_environment import VLLM_VARIABLES
from kvcanon.lab.vllm_engine.planted_faults import DISK_FAULTS, PLANTED, WINDOW_FAULTS
from kvcanon.lab.vllm_engine.run_script import EngineSettings
from kvcanon.lab.vllm_engine.tiny_models import FULL, MODELS, WINDOW

ANSWER = "ANSWER "
DISK_MIB = 64.0
MOST_SECONDS = 600


@frozen
class EngineVerdict:
    """An engine with the connector, beside one without."""

    settings: EngineSettings
    replies: int
    equal: int
    """Replies that have the same tokens."""
    cached_without: int
    cached_with: int
    complaints: tuple[str, ...]
    """What the referees say against it."""
    counts: Mapping[str, int]


def sound_settings(seed: int) -> Iterator[EngineSettings]:
    """The engines that must answer as one without a connector does."""
    for model in MODELS:
        usual = EngineSettings(model, seed=seed, host_blocks=48 if model == FULL else 96)
        yield usual
        yield evolve(usual, at_a_time=4, failing=True)
        yield evolve(usual, policy="write_through", at_a_time=4)
        yield evolve(usual, ranks=2, at_a_time=4)
        yield evolve(usual, at_a_time=4, failing=True, beside=True, overlapping=True)


def faulty_settings(seed: int) -> Iterator[EngineSettings]:
    """An engine for each planted fault."""
    for fault in PLANTED:
        model = WINDOW if fault in WINDOW_FAULTS else FULL
        host = 96 if model == WINDOW else 48
        settings = EngineSettings(model, fault=fault, seed=seed, host_blocks=host)
        over_disk = evolve(settings, policy="write_through", disk_mib=DISK_MIB)
        yield over_disk if fault in DISK_FAULTS else settings


def restarted_settings(seed: int) -> Iterator[EngineSettings]:
    """The engines that are started again over their disk."""
    for model in MODELS:
        usual = EngineSettings(model, seed=seed, disk_mib=DISK_MIB, host_blocks=48)
        yield evolve(usual, policy="write_through", killed=True, ranks=2 if model == FULL else 1)


def judge_restarted(
    peer: Peer, settings: EngineSettings, plain: Mapping[str, object]
) -> EngineVerdict:
    """Run an engine, then another over what it left, then one with other weights at the same path.

    The second must answer from the disk, and the third must read nothing of it. Raises: UsageError.
    """
    with TemporaryDirectory() as folder:
        kept = evolve(settings, folder=folder)
        first = judge(peer, kept, plain)
        second = judge(peer, evolve(kept, killed=False, salts="another"), plain)
        complaints = [f"before the restart {each}" for each in first.complaints]
        complaints += [f"after the restart {each}" for each in second.complaints]
        if not second.counts.get("disk_read_pages"):
            complaints.append("nothing was read from the disk after the restart")
        if not complaints:
            other = answer_of(peer, evolve(kept, seed=settings.seed + 1, script=settings.seed))
            if other["found_on_disk"]:
                complaints.append(f"other weights found {other['found_on_disk']} pages")
    return evolve(second, settings=settings, complaints=tuple(complaints))


def judge(peer: Peer, settings: EngineSettings, plain: Mapping[str, object]) -> EngineVerdict:
    """Run an engine, and compare it with the answer of one without a connector.

    Raises: UsageError, if a sound engine ends early; a faulty one is found then.
    """
    try:
        answer = answer_of(peer, settings)
    except UsageError as error:
        if not settings.fault:
            raise
        return EngineVerdict(settings, 0, 0, 0, 0, (f"the engine ended: {error}",), {})
    replies = cast("list[list[int]]", answer["replies"])
    expected = cast("list[list[int]]", plain["replies"])
    equal = sum(own == other for own, other in zip(replies, expected, strict=True))
    words = {
        "salted_hits": "tokens under a new salt were cached",
        "hits_after_reset": "tokens were cached after a reset",
        "untrue_events": "steps after which events did not say what was on the host",
    }
    complaints = [f"{answer[name]} {said}" for name, said in words.items() if answer[name]]
    if equal < len(replies):
        complaints.insert(0, f"{len(replies) - equal} replies have other tokens")
    return EngineVerdict(
        settings,
        len(replies),
        equal,
        sum(cast("list[int]", plain["cached"])),
        sum(cast("list[int]", answer["cached"])),
        tuple(complaints),
        cast("Mapping[str, int]", answer["counts"]),
    )


def answer_of(peer: Peer, settings: EngineSettings) -> Mapping[str, object]:
    """Run an engine. Raises: UsageError, with the end of its log, if it answers nothing."""
    source = str(Path(next(iter(kvcanon.__path__))).parent)
    given = json.dumps(asdict(settings))
    command = [str(peer.python), "-W", "ignore", "-m", f"{__package__}.engine_run", given]
    with TemporaryDirectory() as folder:
        _write_entry_points(Path(folder))
        # The disk needs it, and vLLM does not bring it.
        (Path(folder) / "xxhash").symlink_to(Path(xxhash.__file__).parent)
        paths = {"PYTHONPATH": os.pathsep.join((source, folder))}
        ended = subprocess.run(  # noqa: S603  # The environment's own interpreter.
            command,
            env=peer.variables | VLLM_VARIABLES | paths,
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
            check=False,
        )
    for line in ended.stdout.splitlines():
        if line.startswith(ANSWER):
            return cast("Mapping[str, object]", json.loads(line.removeprefix(ANSWER)))
    errors = [line for line in (ended.stdout + ended.stderr).splitlines() if "Error" in line]
    last = errors[-1] if errors else f"exit code {ended.returncode}"
    raise UsageError(f"an engine of vLLM answered nothing: {last}")


def _write_entry_points(folder: Path) -> None:
    """Write what an installed kvcanon declares, by which each process of vLLM finds its plugin."""
    ours = distribution("kvcanon")
    written = folder / f"kvcanon-{ours.version}.dist-info"
    written.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        (written / name).write_text(ours.read_text(name) or "", encoding="utf-8")
