"""Tables of `kvcanon lab bench tree`: requests, single calls, and how both grow.

The first cache of a file is compared with the second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, TypeAlias

from kvcanon.lab.bench.case import BenchCell, HostSetup, RequestStep
from kvcanon.lab.bench.tables.table import (
    DASH,
    RunFile,
    Table,
    name_of,
    ratio,
    rounds_of,
    share,
    table,
    us,
)

MIB = 2**20
BLOCK_BYTES, PADDING_BYTES = 64, 9
"""The blocks of SHA-256, and the least that it adds to a message."""
HASH_BYTES, TOKEN_BYTES = 32, 4
"""What a page's message has: the hash before it, and its tokens."""

Cell: TypeAlias = Mapping[str, Any]
Measured: TypeAlias = Mapping[str, Any]
"""What one cache did in a cell."""


def requests_without_events(files: Sequence[RunFile]) -> Table:
    """Requests a second, inserts and memory of two caches, without events."""
    return _requests(files, events=False)


def requests_with_events(files: Sequence[RunFile]) -> Table:
    """The same with events."""
    return _requests(files, events=True)


def _requests(files: Sequence[RunFile], *, events: bool) -> Table:
    rows = []
    for cell, ours, theirs in _pairs(files):
        if cell["events"] == events and cell["host"] is None:
            inserts = (f"{_call(each, 'insert')['p99_us']:,.0f}" for each in (ours, theirs))
            memory = (f"{each['cache_bytes'] / MIB:,.0f}" for each in (ours, theirs))
            rows.append(
                (*_first(cell), *_speeds(ours, theirs), _against(inserts), _against(memory))
            )
    heads = (f"events {'on' if events else 'off'}", "page", "requests/s", _second(files), "times")
    return table((*heads, "insert p99 us", "memory of the cache, MiB"), rows, _rounds(files))


def requests_with_host(files: Sequence[RunFile]) -> Table:
    """Requests a second and hit rates with a host tier, and the call that gains least."""
    rows = []
    for cell, ours, theirs in _pairs(files):
        if cell["host"] is not None:
            hits, loaded = (
                " / ".join(dict.fromkeys(share(each[rate]) for each in (ours, theirs)))
                for rate in ("hit_rate", "loaded_rate")
            )
            times, step = min(_tails_gained(ours, theirs))
            policy = cell["host"]["write_policy"]
            row = (policy, *_first(cell), *_speeds(ours, theirs), hits, loaded)
            rows.append((*row, f"{step} {times:.1f}"))
    heads = ("policy", "components", "page", "requests/s", _second(files), "times", "hit rate")
    return table((*heads, "loaded", "least of p99.9"), rows, _rounds(files))


def hashing(files: Sequence[RunFile]) -> Table:
    """How near to SHA-256 alone two caches come with events."""
    rows = []
    for cell, ours, theirs in _pairs(files):
        if cell["events"]:
            message = HASH_BYTES + TOKEN_BYTES * cell["page_size"]
            hashed = -(-(message + PADDING_BYTES) // BLOCK_BYTES) * BLOCK_BYTES
            own = ours["hash_share"]
            shares = f"{share(own, 2)} ({share(own * message / hashed, 2)})"
            others = share(theirs["hash_share"], 2)
            rows.append((*_first(cell), *_speeds(ours, theirs), shares, others))
    heads = ("events on", "page", "requests/s", _second(files), "times", "of SHA-256")
    return table((*heads, "SGLang, of SHA-256"), rows, _rounds(files))


def hit_rates(files: Sequence[RunFile]) -> Table:
    """The hit rates of all caches of a file, with one size of page."""
    rows, caches = [], dict[str, None]()
    for cell, *results in _cells(files):
        kept = cell["components"]
        if cell["window_tokens"]:
            window = f"window {cell['window_tokens']}"
            kept = f"{kept}, {window}, window pool of {cell['swa_tokens']:,} tokens"
        caches |= dict.fromkeys(name_of(each["cache"]) for each in results)
        rows.append((kept, *(share(each["hit_rate"]) for each in results)))
    return table(("", *caches), rows, f"{_rounds(files)}; hits do not vary")


def hit_rates_with_host(files: Sequence[RunFile]) -> Table:
    """The hit rates of two caches with a host tier, by the size of its window pool."""
    rows = dict[tuple[str, str, str], tuple[str, str]]()
    for cell, *results in _cells(files):
        if (host := cell["host"]) is not None:
            window = f"{host['swa_tokens']:,}" if cell["window_tokens"] else DASH
            ours, theirs = (share(each["hit_rate"]) for each in results[:2])
            rows[host["write_policy"], cell["components"], window] = ours, theirs
    heads = ("policy", "components", "host pool for window data", "kvcanon", _second(files))
    found = [(*what, *rates) for what, rates in rows.items()]
    return table(heads, found, f"{_rounds(files)}; hits do not vary")


def calls_write_through(files: Sequence[RunFile]) -> Table:
    """Times of single calls in full trees under write_through."""
    return _calls(files, "write_through")


def calls_write_back(files: Sequence[RunFile]) -> Table:
    """The same under write_back."""
    return _calls(files, "write_back")


def _calls(files: Sequence[RunFile], policy: str) -> Table:
    found = dict[tuple[int, int], Measured]()
    for file in files:
        for tree in file["tails"]:
            if tree["host"] is not None and tree["host"]["write_policy"] == policy:
                for place, each in enumerate(tree["results"][:2]):
                    found[place, tree["nodes"]] = each
    sizes = sorted({nodes for _, nodes in found})
    columns = [(place, nodes) for place in (0, 1) for nodes in sizes]
    rows = [
        (step.value, *(_quantiles(found.get(column), step) for column in columns))
        for step in RequestStep
        if any(step in run["steps"] for each in found.values() for run in each["runs"])
    ]
    ours, theirs = (
        (f"{nodes:,} nodes" for nodes in sizes),
        (f"SGLang, {nodes:,}" for nodes in sizes),
    )
    return table(
        (policy, *ours, *theirs), rows, "p50 / p99 / p99.9 / most, of the calls of one run"
    )


def full_hits(files: Sequence[RunFile]) -> Table:
    """A full hit of a long prompt beside memcmp, hot and cold."""
    rows = []
    for file in files:
        for name, hit in file["full_hits"].items():
            pairs = ((hit[way]["p50_us"], hit[f"floor_{way}"]["p50_us"]) for way in ("hot", "cold"))
            texts = ((us(own), us(floor), ratio(own / floor)) for own, floor in pairs)
            rows.append((name_of(name), *(text for some in texts for text in some)))
    heads = ("", "hot", "memcmp", "times", "cold", "memcmp", "times")
    return table(heads, rows, "medians of the calls")


def growth_with_tree(files: Sequence[RunFile]) -> Table:
    """Match and insert, by the pages in the cache."""
    return _curves(files, "with_tree")


def growth_with_prompt(files: Sequence[RunFile]) -> Table:
    """Match and insert, by the tokens of the prompt."""
    return _curves(files, "with_prompt")


def _curves(files: Sequence[RunFile], which: str) -> Table:
    curves = {name: points for file in files for name, points in file[which].items()}
    sizes = dict.fromkeys(f"{point['size']:,}" for points in curves.values() for point in points)
    rows = [
        (
            name_of(name),
            *(" / ".join(us(each[call]["p50_us"]) for call in ("match", "insert")) for each in of),
        )
        for name, of in curves.items()
    ]
    return table(("", *sizes), rows, "medians of the calls, match / insert")


def _cells(files: Sequence[RunFile]) -> Iterator[tuple[Any, ...]]:
    """Each cell with what it is about, and the results of its caches."""
    for file in files:
        for cell in file["cells"]:
            results = cell["results"]
            yield {**cell, "components": _cell_of(cell).components}, *results


def _pairs(files: Sequence[RunFile]) -> Iterator[tuple[Cell, Measured, Measured]]:
    for cell, *results in _cells(files):
        yield cell, results[0], results[1]


def _cell_of(cell: Cell) -> BenchCell:
    host = cell["host"]
    return BenchCell(
        cell["page_size"],
        cell["pool_tokens"],
        cell["window_tokens"],
        cell["swa_tokens"],
        cell["events"],
        HostSetup(**host) if host else None,
    )


def _first(cell: Cell) -> tuple[str, str]:
    return cell["components"], str(cell["page_size"])


def _speeds(ours: Measured, theirs: Measured) -> tuple[str, str, str]:
    """Requests a second of both, and how many times more the first serves."""
    own, other = ours["requests_per_second"], theirs["requests_per_second"]
    return f"{own:,.0f}", f"{other:,.0f}", f"{own / other:.1f}"


def _tails_gained(ours: Measured, theirs: Measured) -> Iterator[tuple[float, str]]:
    """How many times longer the slowest calls of the second take, by step."""
    for step in RequestStep:
        runs = (*ours["runs"], *theirs["runs"])
        if all(step in run["steps"] for run in runs):
            yield _call(theirs, step)["p999_us"] / _call(ours, step)["p999_us"], step.value


def _call(result: Measured, step: str) -> dict[str, float]:
    """The times of a step, medians of the runs."""
    runs = [run["steps"][step] for run in result["runs"]]
    return {name: median(run[name] for run in runs) for name in runs[0]}


def _quantiles(result: Measured | None, step: str) -> str:
    if result is None or any(step not in run["steps"] for run in result["runs"]):
        return DASH
    times = _call(result, step)
    names = ("p50_us", "p99_us", "p999_us", "max_us")
    return " / ".join(us(times[name], whole_from=10) for name in names)


def _second(files: Sequence[RunFile]) -> str:
    """What the cache that is compared with is called in a head."""
    return name_of(files[0]["cells"][0]["results"][1]["cache"])


def _rounds(files: Sequence[RunFile]) -> str:
    counts = dict.fromkeys(file["rounds"] for file in files)
    return ", and ".join(rounds_of(count) for count in counts)


def _against(texts: Iterator[str]) -> str:
    return " against ".join(texts)
