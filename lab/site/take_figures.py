"""Takes what a bench wrote with `--json` into lab/bench/measured, as a table of the docs.

The file in place says which question the table answers; all else is of the runs.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.bench.tables import (
    cliffs,
    engine,
    explored,
    gpu,
    judge,
    live,
    probe,
    replay,
    stopped,
    stores,
    tiers,
    trace_runs,
    tree,
)
from kvcanon.lab.bench.tables.table import MakeTable, RunFile
from kvcanon.lab.site.measured import FOLDER

TAKEN: Mapping[str, MakeTable] = {
    "calls_write_back": tree.calls_write_back,
    "calls_write_through": tree.calls_write_through,
    "cliffs_little": cliffs.little,
    "cliffs_much": cliffs.much,
    "disk_speed": stores.store_speed,
    "engine_memory": engine.engine_memory,
    "engine_thread": engine.engine_thread,
    "events_sha": tree.hashing,
    "dynamo": trace_runs.dynamo,
    "explore_all": explored.explored,
    "explore_deep": explored.explored,
    "explore_fast": explored.explored,
    "explore_laws": explored.explored_laws,
    "explore_stored": explored.explored,
    "fleet": live.fleet,
    "gpu_engine": engine.gpu_engine,
    "gpu_transfers": gpu.gpu_transfers,
    "growth_hit": tree.full_hits,
    "growth_prompt": tree.growth_with_prompt,
    "growth_tree": tree.growth_with_tree,
    "guard_rates": replay.guard_rates,
    "guard_tails": live.guard_tails,
    "guard_whole": replay.guard_whole,
    "hit_rates_chat": tree.hit_rates_with_host,
    "hit_rates_peers": tree.hit_rates,
    "hit_rates_tiers": tiers.tier_hits,
    "judge_growth": judge.judge_growth,
    "judge_steps": judge.judge_steps,
    "probe_faults": probe.probe_faults,
    "probe_sound": probe.probe_sound,
    "plain_speed": replay.plain_speed,
    "ranks": trace_runs.ranks,
    "server": engine.server,
    "server_cores": engine.server_cores,
    "stopped_stores": stopped.stopped_stores,
    "store_speed": stores.store_speed,
    "tier_times": tiers.tier_times,
    "tree_events": tree.requests_with_events,
    "tree_host": tree.requests_with_host,
    "tree_plain": tree.requests_without_events,
}
"""What makes each table of its runs."""
RUN = ("command", "commit", "date")


def take_figures(name: str, files: Sequence[Path], checkout: Path) -> None:
    """Write the table of a name anew, of the files of its runs.

    Raises: UsageError: there is no such table, or the files are not what its command writes.
    """
    if name not in TAKEN:
        raise UsageError(f"no table {name} is made of a file; name one of {', '.join(TAKEN)}")
    place = checkout / FOLDER / f"{name}.json"
    question = json.loads(place.read_text("utf-8"))["question"]
    runs = [_read(file) for file in files]
    named = ", ".join(map(str, files))
    try:
        made = TAKEN[name](runs)
        records = [{each: run["run"][each] for each in RUN} for run in runs]
        machine = made.machine or _machine(run["run"]["machine"] for run in runs)
    except (KeyError, IndexError, StopIteration) as error:
        why = f"{named} lacks {error} for the table {name}"
        raise UsageError(f"{why}; run its command again, to its end") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"{named} is no file of which the table {name} is made") from error
    for record in records:
        record["command"] = _without_folders(record["command"])
    kept = {
        "question": question,
        "command": records[0]["command"],
        "machine": machine,
        "figures_are": made.figures_are,
        "old": "",
        "runs": records,
        "heads": made.heads,
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in kept.items()]
    rows = ",\n".join(f"  {json.dumps(row)}" for row in made.rows)
    place.write_text("\n".join(["{", *lines, ' "rows": [', rows, " ]", "}\n"]), "utf-8")


def _read(file: Path) -> RunFile:
    try:
        value: RunFile = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    return value


def _without_folders(command: str) -> str:
    """A command without the folders of the machine on which it ran."""
    parts = shlex.split(command)
    return shlex.join(Path(part).name if part.startswith("/") else part for part in parts)


def _machine(machines: Iterable[Mapping[str, object]]) -> str:
    """The machines of some runs, which are one if they differ in their load alone."""
    loads: dict[str, list[float]] = {}
    for each in machines:
        cores, used = each["cores"], each["cores_used"]
        what = f"{cores} cores" if cores == used else f"{used} of {cores} cores"
        processor = each["processor"] or each["architecture"]
        priority = ", real-time priority" if each["real_time"] else ""
        named = f"{what} ({processor}), Python {each['python']}{priority}"
        loads.setdefault(named, []).append(float(str(each["load"])))
    return "; ".join(f"{named}, {_loaded(found)}" for named, found in loads.items())


def _loaded(loads: Sequence[float]) -> str:
    least, most = min(loads), max(loads)
    return f"load {least} at the end" if least == most else f"load {least} to {most} at the end"
