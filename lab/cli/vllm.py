"""`kvcanon lab vllm`: runs CPU engines of vLLM with kvcanon's connector and compares them.

With `--faults` it runs engines with a planted fault each, which must be found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from attrs import asdict

from kvcanon.conformance.cli.command_line import BROKEN
from kvcanon.conformance.cli.options import AsJson, DrawSeed
from kvcanon.conformance.cli.terminal import (
    ReportConsole,
    figures_table,
    print_json,
    print_title,
    progress,
)
from kvcanon.lab.cli.peers import PeersFolder
from kvcanon.lab.releases.catalogue import release_named
from kvcanon.lab.releases.environment import make, run_command
from kvcanon.lab.servers.server_environment import VLLM_RELEASE
from kvcanon.lab.vllm_engine.run_script import EngineSettings
from kvcanon.lab.vllm_engine.verdict import (
    EngineVerdict,
    answer_of,
    faulty_settings,
    judge,
    judge_restarted,
    restarted_settings,
    sound_settings,
)


def vllm_command(
    into: PeersFolder,
    *,
    seed: DrawSeed = 0,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="How many seeds to run.")] = 1,
    faults: Annotated[
        bool, typer.Option("--faults", help="Plant faults, each of which must be found.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run CPU engines of vLLM with kvcanon's connector: tokens must be those of engines without."""
    peer = make(release_named(VLLM_RELEASE), into, run_command)
    verdicts: list[EngineVerdict] = []
    for each in range(seed, seed + seeds):
        engines = list(faulty_settings(each) if faults else sound_settings(each))
        models = {settings.model for settings in engines}
        plain = {
            model: answer_of(peer, EngineSettings(model, connector=False, seed=each))
            for model in sorted(models)
        }
        if not faults:
            engines += restarted_settings(each)
        with progress(engines, f"seed {each}") as settings_left:
            for run in settings_left:
                judged = judge_restarted if run.disk_mib else judge
                verdicts.append(judged(peer, run, plain[run.model]))
    wrong = [each for each in verdicts if bool(each.complaints) != bool(each.settings.fault)]
    if as_json:
        print_json([asdict(each) for each in verdicts])
    else:
        _print(verdicts, seed, wrong=len(wrong), faults=faults)
    if wrong:
        raise typer.Exit(BROKEN)


def _print(verdicts: Sequence[EngineVerdict], seed: int, *, wrong: int, faults: bool) -> None:
    out = ReportConsole()
    print_title(out, "vllm", f"{len(verdicts)} engines, first seed {seed}")
    table = figures_table("replies", "equal", "cached without", "cached with", "failed loads")
    table.add_column("engine")
    table.add_column("referees")
    for each in verdicts:
        figures = (each.replies, each.equal, each.cached_without, each.cached_with)
        failed = each.counts.get("failed_loads", 0)
        table.add_row(
            *(f"{figure:,}" for figure in (*figures, failed)),
            _engine(each.settings),
            "; ".join(each.complaints) or "nothing",
        )
    out.print(table)
    if faults:
        out.print(f"{len(verdicts) - wrong} of {len(verdicts)} faults were found.")
    else:
        out.print(f"{wrong} of {len(verdicts)} engines answered otherwise than without kvcanon.")


def _engine(settings: EngineSettings) -> str:
    if settings.fault:
        return f"{settings.model}, {settings.fault}"
    also = {
        "failing loads": settings.failing,
        "beside a second tier": settings.beside,
        "overlapping steps": settings.overlapping,
        "restarted over a disk": bool(settings.disk_mib),
    }
    words = (
        *(settings.model, settings.policy, f"{settings.at_a_time} at a time"),
        *(f"{settings.ranks} ranks", *(what for what, on in also.items() if on)),
    )
    return ", ".join(words)
