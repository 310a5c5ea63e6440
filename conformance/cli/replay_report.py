"""The report of a replay, as text and as JSON.

Events cover full data only; window data and mamba states count under evictions and load-backs.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import asdict
from rich.padding import Padding
from rich.text import Text

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon import __version__
from kvcanon.conformance.cli.terminal import ReportConsole, columns, figures_table, print_title
from kvcanon.conformance.replay.replay import Judgement, Replay, TreeShape
from kvcanon.conformance.replay.workload import Workload
from kvcanon.run_record import run_record
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import LAWS
from kvcanon.spec.types import Counts


def replay_json(
    cache: str,
    workload: Workload,
    config: CacheConfig,
    runs: Sequence[Replay],
    notes: Sequence[str],
) -> dict[str, object]:
    """The report as a value for JSON: that of the last run, and those before its restarts."""
    *before, result = runs
    report: dict[str, object] = {
        "kvcanon": __version__,
        "run": run_record(),
        "cache": cache,
        "workload": str(workload),
        "seed": workload.seed,
        "config": asdict(config),
        "notes": list(notes),
        "result": result.to_json(),
    }
    if before:
        report["before_restarts"] = [each.to_json() for each in before]
    return report


def print_replay(
    cache: str,
    workload: Workload,
    config: CacheConfig,
    runs: Sequence[Replay],
    notes: Sequence[str],
) -> None:
    """Print the report of the last run; `notes` say what is unusual for this cache."""
    out, result = ReportConsole(), runs[-1]
    print_title(out, f"replay {cache}", f"{workload}, seed {workload.seed}")
    if len(runs) > 1:
        _print_runs(out, runs)
    table = columns()
    for name, value in _rows(config, result).items():
        table.add_row(name, value)
    if notes:
        table.add_row("notes", "; ".join(notes))
    out.print(Padding(table, (0, 0, 1, 2)))
    table = figures_table("operation", "calls", "p50 us", "p99 us", "seconds")
    for name, latency in result.operations.items():
        table.add_row(
            name,
            f"{latency.calls:,}",
            f"{latency.p50_us:,.1f}",
            f"{latency.p99_us:,.1f}",
            f"{latency.seconds:.3f}",
        )
    out.print(Padding(table, (0, 0, 1, 2)))
    for line in _verdict(result.judgement):
        out.print(line)


def _print_runs(out: ReportConsole, runs: Sequence[Replay]) -> None:
    """Print the hits of each run between two restarts."""
    table = figures_table(
        *("run", "hit rate", "on device", "load-back", "of these from store", "was resident")
    )
    for number, run in enumerate(runs, 1):
        prompts = max(1, run.prompt_tokens)
        table.add_row(
            str(number),
            f"{run.hit_rate:.4f}",
            f"{run.device_hit_tokens / prompts:.4f}",
            f"{run.host_hit_tokens / prompts:.4f}",
            f"{run.store_hit_tokens / prompts:.4f}",
            f"{run.resident_tokens / prompts:.4f}",
        )
    out.print(Padding(table, (0, 0, 1, 2)))
    out.print(f"Run {len(runs)}, after the last restart:")


def _rows(config: CacheConfig, result: Replay) -> dict[str, str]:
    prompt_tokens = max(1, result.prompt_tokens)
    tree, has_store = result.tree, result.resident_tokens > 0
    return {
        "cache": _cache(config),
        "requests": f"{result.requests:,}, {result.rejected:,} of them rejected",
        "prompts": f"{result.prompt_tokens:,} tokens",
        "hit rate": f"{result.hit_rate:.4f} of the tokens: "
        f"{result.device_hit_tokens / prompt_tokens:.4f} on the device, "
        f"{result.host_hit_tokens / prompt_tokens:.4f} after a load-back"
        + (f" ({result.store_hit_tokens / prompt_tokens:.4f} from the store)" if has_store else ""),
        "evicted": f"{_of_components(config, result.evicted)} slots",
        "backups": f"{result.backups:,} by inserts; no free host slots for "
        f"{result.backup_declined_pages:,} pages",
        "load-backs": f"{result.load_backs:,}, {_of_components(config, result.loaded)} slots",
        "events": ", ".join(f"{count:,} {name}" for name, count in result.events.items())
        or ("none taken" if config.events else "off"),
        "tree": "not shown" if tree is None else _shape(tree),
        "time": f"{result.cache_seconds:.2f} s in the cache, "
        f"{result.requests_per_second:,.0f} requests a second",
    }


def _shape(tree: TreeShape) -> str:
    return (
        f"{tree.nodes:,} nodes, {tree.branches:,} branches, {tree.tombstones:,} tombstones; "
        f"{tree.device_pages:,} pages on the device, {tree.host_only_pages:,} on the host only"
    )


def _cache(config: CacheConfig) -> str:
    parts = [
        f"pages of {config.page_size}",
        f"{_of_components(config, config.device_slots)} slots",
        config.eviction_policy.value,
    ]
    if config.window_tokens is not None:
        parts.insert(1, f"window of {config.window_tokens:,} tokens")
    if config.host_tier:
        host = f"host {_of_components(config, config.host_slots)}"
        parts.append(f"{host}, {config.write_policy.value}")
    return "; ".join(parts)


def _of_components(config: CacheConfig, counts: Counts) -> str:
    return " + ".join(f"{counts[each]:,} {each.value}" for each in config.components)


def _verdict(judgement: Judgement | None) -> list[Text]:
    if judgement is None:
        return [Text("Not judged; --guard 1 checks every law after every step.", "yellow")]
    exercised = [law_id for law_id, times in judgement.laws.items() if times]
    summary = (
        f"{judgement.judged:,} of {judgement.steps:,} steps judged; {len(exercised)} laws were "
        f"exercised, {sum(judgement.laws.values()):,} times in all"
    )
    if judgement.broken:
        return [
            Text(f"BROKEN: {', '.join(judgement.broken)}", "bold red"),
            Text(f"{judgement.words}\n"),
            Text(f"{summary}."),
        ]
    lines = [Text.assemble(("No law is broken. ", "bold green"), f"{summary}.")]
    if judgement.unkept:
        lines.append(Text(f"SHOULD, not kept: {', '.join(judgement.unkept)}.", "yellow"))
    others = [law_id for law_id in LAWS if law_id not in exercised]
    if others:
        lines.append(Text(f"Not exercised: {', '.join(others)}.", "yellow"))
    return lines
