"""`python -m kvcanon.lab.servers`: plays the script to real SGLang servers, and compares.

Started elsewhere, it makes the environment of servers first, and goes on in it. Exits with 1 if
something was wrong, with 2 if it could not run, and with 3 if servers are left to a later portion.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from attrs import asdict, evolve

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.releases.environment import run_command, usual_folder
from kvcanon.lab.servers.kept_runs import KeptRuns, PortionOverError, kept_runs
from kvcanon.lab.servers.killed_servers import run_kills
from kvcanon.lab.servers.probed import run_probes
from kvcanon.lab.servers.refused_starts import run_refusals
from kvcanon.lab.servers.runs import EngineRuns, run_faults
from kvcanon.lab.servers.script_rounds import SMALL, WHOLE, ScriptSize
from kvcanon.lab.servers.server_environment import make_server_environment, make_vllm_environment
from kvcanon.lab.servers.server_setup import CORES, GPU_DEVICE, RUST, small_setups, whole_setups
from kvcanon.lab.servers.soaked import run_soak
from kvcanon.lab.servers.stopped_stores import DEADLINE_SECONDS, run_stopped
from kvcanon.lab.servers.storage_hits import run_storage
from kvcanon.lab.servers.stored_pages import run_stored
from kvcanon.lab.servers.summary import ServerRun, beside_rust, not_compared, not_exercised
from kvcanon.lab.servers.tried_ways import run_tries
from kvcanon.lab.servers.verdict import with_references
from kvcanon.lab.servers.vllm_server import VLLM
from kvcanon.lab.torch_device import CPU_DEVICE, require_device
from kvcanon.run_record import with_run

SOAK_MINUTES = 120.0
SOUND_SEEDS = 10
"""Seeds with which nothing may be found of a sound server."""
UNFINISHED = 3
"""The exit status of a portion that left servers to the next."""
FOUND = "every planted fault was found"
STARTED_AGAIN = "every server started again, and answered right"
SERVED = "every way served"
NOT_HELD = (
    "every reply was right, no request waited longer than a deadline, and stores were used again"
)
FETCHED = "every reply was right, and both cores found the same in storage where they waited"
READ_RIGHT = "every reply was right, and no server read what was not its own"
STAYED = "every reply was right, and memory stayed flat"
MOST_SHOWN = 5
"""Findings of one server that are printed; transcripts have all."""


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Read the command line; exits with 2 if it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m kvcanon.lab.servers",
        description="Play a script to real SGLang servers, one for each tree core, and compare.",
    )
    parser.add_argument(
        "--cores",
        default=",".join(CORES),
        metavar="NAMES",
        help="tree cores (default: %(default)s)",
    )
    parser.add_argument(
        "--small",
        action="store_true",
        help="one way to serve and a shorter script: under 4 minutes",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of models and script (default: 0)"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=SOUND_SEEDS,
        metavar="N",
        help="with --probe: seeds for each sound server (default: %(default)s)",
    )
    parser.add_argument(
        "--environment", action="store_true", help="make the environment of servers, no more"
    )
    _add_other_runs(parser)
    parser.add_argument(
        "--device",
        default=CPU_DEVICE,
        choices=(CPU_DEVICE, GPU_DEVICE),
        help="where servers of the script compute (default: %(default)s)",
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="only servers, or faults, with this text in their names",
    )
    parser.add_argument(
        "--server-flags",
        default="",
        metavar="TEXT",
        help="further arguments of each server of the script, as '--dp-size 2'",
    )
    parser.add_argument(
        "--into",
        type=Path,
        metavar="DIR",
        help="folder for transcripts and logs (default: temporary)",
    )
    parser.add_argument(
        "--portion",
        type=float,
        metavar="MINUTES",
        help="begin no server after this time; the same command goes on where this one stopped. "
        "Needs --into",
    )
    parser.add_argument(
        "--peers",
        type=Path,
        metavar="DIR",
        default=Path(os.environ.get("KVCANON_PEERS") or usual_folder()),
        help="folder of the environments of `kvcanon lab peers`",
    )
    return parser.parse_args(given)


def _add_other_runs(parser: argparse.ArgumentParser) -> None:
    """Add the options that play something else than the script to all cores."""
    parser.add_argument(
        "--faults", metavar="CORE", help="plant faults in this core, each of which must be found"
    )
    parser.add_argument(
        "--probe",
        metavar="CORE",
        help="probe servers of this core, or `vllm`: sound, and with faults, each of which must be "
        "found",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="with --probe and --stopped: write what was found, as JSON",
    )
    parser.add_argument(
        "--refusals",
        action="store_true",
        help="start servers with what kvcanon does not offer, each of which must be refused",
    )
    parser.add_argument(
        "--kills",
        metavar="CORE",
        help="kill servers of this core by SIGKILL, and start them again on the same ports",
    )
    parser.add_argument(
        "--tries", metavar="CORE", help="try ways to serve that the script does not play"
    )
    parser.add_argument(
        "--stored",
        nargs="?",
        const=RUST,
        metavar="CORES",
        help="start servers of these cores (alone: stock ones) over pages that another wrote to "
        "kvcanon's disk: the same model, other weights, another dtype, damage",
    )
    parser.add_argument(
        "--storage",
        action="store_true",
        help="store and fetch pages by SGLang's `file` storage, over kvcanon's core and Rust's",
    )
    parser.add_argument(
        "--stopped",
        metavar="CORES",
        help="stop Redis and Mooncake under servers of these cores, as `kvcanon,rust`: no request "
        "may wait for them",
    )
    parser.add_argument(
        "--soak",
        metavar="CORE",
        help="use a server of this core for --minutes; memory must be flat",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=SOAK_MINUTES,
        metavar="N",
        help="with --soak: how long (default: %(default)g)",
    )


def main() -> int:
    """Run from the command line; returns the exit status."""
    given = arguments(sys.argv[1:])
    try:
        if given.environment:
            _say(f"servers run in {make_server_environment(given.peers, run_command).folder}")
            return 0
        if find_spec(VLLM if given.probe == VLLM else "sglang") is None:
            environment = make_vllm_environment if given.probe == VLLM else make_server_environment
            peer = environment(given.peers, run_command)
            command = [str(peer.python), "-W", "ignore", "-m", __package__, *sys.argv[1:]]
            os.execve(peer.python, command, peer.variables)  # noqa: S606  # It goes on there.
        with tempfile.TemporaryDirectory(prefix="kvcanon-engine-") as temporary:
            folder = given.into or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            return run(given, folder)
    except KeyboardInterrupt:
        return 130
    except PortionOverError:
        _say("this portion is over; the same command goes on")
        return UNFINISHED
    except (UsageError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 2


def run(given: argparse.Namespace, folder: Path) -> int:
    """Play the script to servers; returns the exit status. Raises: UsageError, PortionOverError."""
    size = SMALL if given.small else WHOLE
    kept = _kept(given, size)
    if given.device != CPU_DEVICE and (
        given.probe or given.refusals or given.faults or given.kills or given.soak or given.tries
    ):
        raise UsageError(f"--device {given.device} is for the script alone")
    if given.probe:
        seeds = range(given.seed, given.seed + given.seeds)
        done = run_probes(given.probe, folder, seeds, given.only, _say)
        _write(given.json, {"core": given.probe, "probed": [asdict(each) for each in done]})
        missed = [each.wrong for each in done if each.wrong]
        right = "nothing was found of sound servers, and every planted fault was"
        _say(f"wrong: {', '.join(missed)}" if missed else right)
        return int(bool(missed))
    if given.refusals:
        accepted = run_refusals(folder, given.seed, given.only, _say)
        _say(f"not refused: {', '.join(accepted)}" if accepted else "every start was refused")
        return int(bool(accepted))
    runs = EngineRuns(folder, given.seed, size, _say, kept)
    if given.stopped:
        rows = run_stopped(runs, tuple(given.stopped.split(",")), given.only)
        _write(
            given.json,
            {"deadline_seconds": DEADLINE_SECONDS, "rows": [asdict(each) for each in rows]},
        )
        wrong = [words for each in rows for words in each.wrong]
        _say(f"wrong: {'; '.join(wrong)}" if wrong else NOT_HELD)
        return int(bool(wrong))
    for asked, play, right in _other_runs(given, runs):
        if asked:
            wrong = play()
            _say(f"wrong: {'; '.join(wrong)}" if wrong else right)
            return int(bool(wrong))
    require_device(given.device)
    cores = with_references(tuple(filter(None, given.cores.split(","))))
    setups = small_setups(cores) if given.small else whole_setups(cores)
    flags = tuple(shlex.split(given.server_flags))
    setups = tuple(evolve(each, device=given.device, flags=flags) for each in setups)
    chosen = [each for each in setups if given.only in each.name]
    if not chosen:
        raise UsageError(f"--only {given.only!r} leaves no server of {len(setups)}")
    return report(runs, runs.run_all(chosen))


def _write(into: Path | None, found: Mapping[str, object]) -> None:
    """Write what was found, with what it was found by, if it was asked for."""
    if into is not None:
        command = shlex.join(["python", "-m", __package__, *sys.argv[1:]])
        figures = with_run(found, command)
        into.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def _other_runs(
    given: argparse.Namespace, runs: EngineRuns
) -> tuple[tuple[str | bool | None, Callable[[], list[str]], str], ...]:
    """What may be asked for beside the script: a core, what it plays, and what is right."""
    return (
        (given.faults, lambda: run_faults(runs, given.faults, given.only), FOUND),
        (given.kills, lambda: run_kills(runs, given.kills), STARTED_AGAIN),
        (given.tries, lambda: run_tries(runs, given.tries, given.only), SERVED),
        (
            given.stored,
            lambda: run_stored(runs, tuple(given.stored.split(",")), given.only),
            READ_RIGHT,
        ),
        (given.storage, lambda: run_storage(runs, given.only), FETCHED),
        (given.soak, lambda: run_soak(runs, given.soak, given.minutes), STAYED),
    )


def _kept(given: argparse.Namespace, size: ScriptSize) -> KeptRuns | None:
    """What earlier portions left; None where the run is one portion. Raises: UsageError."""
    if given.portion is None:
        return None
    if given.probe:
        raise UsageError("--portion is for the script; a probe is played as a whole")
    if given.into is None:
        raise UsageError("--portion needs --into, the folder that keeps what was played")
    if not given.portion > 0:
        raise UsageError(f"--portion {given.portion:g} leaves no time; give minutes")
    return kept_runs(given.into, given.portion, given.seed, size)


def report(runs: EngineRuns, done: Sequence[ServerRun]) -> int:
    """Print what was wrong and what was not exercised; returns the exit status."""
    for each in done:
        for finding in each.findings[:MOST_SHOWN]:
            _say(f"  {finding.server}: {finding.kind}: {finding.words}")
        if len(each.findings) > MOST_SHOWN:
            _say(f"  {each.setup.name}: {len(each.findings) - MOST_SHOWN} more findings")
    sound = [each for each in done if not each.findings]
    missing = not_compared(done)
    for each in done:
        script = runs.script(each.setup.model)
        for line in beside_rust(script, each, done):
            _say(line)
        if not each.findings:
            missing += not_exercised(script, each)
    for words in missing:
        _say(f"  NOT SHOWN: {words}")
    wrong = len(done) - len(sound)
    _say(f"{len(done)} servers, {wrong} with findings")
    return int(bool(wrong or missing))


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
