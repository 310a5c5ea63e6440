"""`python -m kvcanon.conformance.serving`: plays the script to real SGLang servers, and compares.

Started elsewhere, it makes the environment of servers first, and goes on in it. Exits with 1 if
something was wrong, and with 2 if it could not run.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from kvcanon.conformance.engines.releases.environment import run_command, usual_folder
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.serving.probed import run_probes
from kvcanon.conformance.serving.runs import EngineRuns, run_faults
from kvcanon.conformance.serving.script_rounds import SMALL, WHOLE
from kvcanon.conformance.serving.server_environment import (
    make_server_environment,
    make_vllm_environment,
)
from kvcanon.conformance.serving.server_setup import CORES, small_setups, whole_setups
from kvcanon.conformance.serving.summary import ServerRun, beside_rust, not_compared, not_exercised
from kvcanon.conformance.serving.verdict import with_references
from kvcanon.conformance.serving.vllm_server import VLLM

MOST_SHOWN = 5
"""Findings of one server that are printed; transcripts have all."""


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Read the command line; exits with 2 if it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m kvcanon.conformance.serving",
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
        "--faults", metavar="CORE", help="plant faults in this core, each of which must be found"
    )
    parser.add_argument(
        "--probe",
        metavar="CORE",
        help="probe servers of this core, or `vllm`: sound, and with faults, each of which must be "
        "found",
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only servers with this text in their names"
    )
    parser.add_argument(
        "--into",
        type=Path,
        metavar="DIR",
        help="folder for transcripts and logs (default: temporary)",
    )
    parser.add_argument(
        "--peers",
        type=Path,
        metavar="DIR",
        default=Path(os.environ.get("KVCANON_PEERS") or usual_folder()),
        help="folder of the environments of `kvcanon peers`",
    )
    return parser.parse_args(given)


def main() -> int:
    """Run from the command line; returns the exit status."""
    given = arguments(sys.argv[1:])
    try:
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
    except (UsageError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 2


def run(given: argparse.Namespace, folder: Path) -> int:
    """Play the script to servers; returns the exit status. Raises: UsageError."""
    if given.probe:
        missed = run_probes(given.probe, folder, given.seed, given.only, _say)
        right = "nothing was found of sound servers, and every planted fault was"
        _say(f"wrong: {', '.join(missed)}" if missed else right)
        return int(bool(missed))
    runs = EngineRuns(folder, given.seed, SMALL if given.small else WHOLE, _say)
    if given.faults:
        missed = run_faults(runs, given.faults)
        _say(f"not found: {', '.join(missed)}" if missed else "every planted fault was found")
        return int(bool(missed))
    cores = with_references(tuple(filter(None, given.cores.split(","))))
    setups = small_setups(cores) if given.small else whole_setups(cores)
    chosen = [each for each in setups if given.only in each.name]
    if not chosen:
        raise UsageError(f"--only {given.only!r} leaves no server of {len(setups)}")
    return report(runs, runs.run_all(chosen))


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
