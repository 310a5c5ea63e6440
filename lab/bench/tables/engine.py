"""Tables of `kvcanon lab bench engine`: SGLang's cache over several cores, and whole servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, median, stdev
from typing import Any, TypeAlias

from kvcanon.lab.bench.tables.table import (
    DASH,
    RunFile,
    Table,
    name_of,
    rounds_of,
    share,
    table,
    us,
)

SPEED, SERVER = "engine_speed", "engine_server"
MEMORIES = {
    "engine_memory": "prompts of 1,200 to 3,000 tokens",
    "engine_memory_short": "prompts of 40 to 80 tokens",
}
CORES = OURS, RUST, PYTHON, FLOOR = "kvcanon", "rust", "python", "floor"

Row: TypeAlias = Mapping[str, Any]


def engine_thread(files: Sequence[RunFile]) -> Table:
    """Microseconds a request in SGLang's cache, by core."""
    rows = []
    for cell, cores in _speeds(files):
        times = (us(cores[c]["request_us"], whole_from=1e9) if c in cores else DASH for c in CORES)
        row = (_cell(cell), str(cell["page_size"]), *times, _ratio(cores, RUST, "request_us"))
        rows.append((*row, _ratio(cores, RUST, "sent_us") if cell["events"] else DASH))
    heads = ("", "page", OURS, "Rust", "Python", FLOOR, "of Rust's", "sent")
    are = "the least time of each step of each request, summed and divided by the requests"
    return table(heads, rows, are)


def gpu_engine(files: Sequence[RunFile]) -> Table:
    """The same with pools on a GPU, beside SGLang's Python core."""
    rows = [
        (
            _cell(cell),
            str(cell["page_size"]),
            *(f"{cores[core]['request_us']:,.0f}" for core in (OURS, PYTHON)),
            _ratio(cores, PYTHON, "request_us"),
        )
        for cell, cores in _speeds(files)
    ]
    are = "the least time of each step of each request, summed and divided by the requests"
    return table(("pools on the GPU", "page", OURS, "Python", "of Python's"), rows, are)


def engine_memory(files: Sequence[RunFile]) -> Table:
    """Bytes a cached token, by core; each run is given."""
    found: dict[tuple[str, str, int], dict[str, list[float]]] = {}
    for file in files:
        for each in file["measured"]:
            if each["what"] in MEMORIES:
                cell = each["of"]
                row = found.setdefault((each["what"], _cell(cell), cell["page_size"]), {})
                row.setdefault(each["found"]["core"], []).append(each["found"]["bytes_per_token"])
    rows = [
        (
            f"{MEMORIES[what]}, {kept}",
            str(page),
            *(" and ".join(f"{value:.1f}" for value in cores[core]) for core in (OURS, RUST)),
            f"{mean(cores[OURS]) / mean(cores[RUST]):.2f}",
        )
        for (what, kept, page), cores in found.items()
    ]
    rows.sort(key=lambda row: list(MEMORIES.values()).index(row[0].rpartition(", full")[0]))
    are = "one run" if len(files) == 1 else f"{len(files)} runs, all given"
    return table(("", "page", OURS, "Rust", "of Rust's"), rows, are)


def server(files: Sequence[RunFile]) -> Table:
    """Whole servers under load."""
    cores = next(_servers(files))
    count = len(cores[0]["rounds"])
    rows = []
    for place, core in enumerate(cores):
        times, wait = core["times"], core["first_token_ms"]
        spread = f"{times['least']:.3f} to {times['most']:.3f}" if place else ""
        rows.append(
            (
                name_of(core["core"]),
                f"{core['requests_per_second']:,.1f}",
                f"{times['median']:.3f}" if place else "1",
                spread,
                _waits(wait),
                share(core["hit_rate"]),
                f"{core['cache_us']:,.0f}",
                f"{core['cache_share']:.1%}".replace("%", " %"),
            )
        )
    heads = ("", "requests/s", "kvcanon's, times these", f"least and most of {count} rounds")
    how = (
        "the third column is the median of the ratios of the rounds, and not the ratio of the "
        "medians"
    )
    more = ("first token, ms: p50 / p99", "hit rate", "cache, us a request", "of a request's time")
    return table((*heads, *more), rows, f"{rounds_of(count)}; {how}")


def server_cores(files: Sequence[RunFile]) -> Table:
    """Two servers on two cores, on one, and at real-time priority: a row a file."""
    rows, counts = [], dict[int, None]()
    for file, (ours, theirs, *_) in zip(files, _servers(files), strict=True):
        pairs = zip(ours["rounds"], theirs["rounds"], strict=True)
        times = [a["requests_per_second"] / b["requests_per_second"] for a, b in pairs]
        counts[len(times)] = None
        error = stdev(times) / len(times) ** 0.5
        spread = f"{min(times):.2f} to {max(times):.2f}; {error:.2f}"
        waits = (_waits(each["first_token_ms"]) for each in (ours, theirs))
        rows.append((_cores_of(file["run"]["machine"]), f"{median(times):.3f} ({spread})", *waits))
    heads = ("", "kvcanon's requests a second, times Rust's", "first token, ms: p50 / p99")
    rounds = ", and ".join(rounds_of(count) for count in counts)
    brackets = "in brackets the least, the most, and the standard error of the mean"
    return table((*heads, "Rust's"), rows, f"{rounds}; {brackets}")


def _speeds(files: Sequence[RunFile]) -> Iterator[tuple[Row, dict[str, Row]]]:
    """Each cell that was timed, with what was measured of each core."""
    for file in files:
        for each in file["measured"]:
            if each["what"] == SPEED:
                yield each["of"], {core["core"]: core for core in each["found"]["cores"]}


def _servers(files: Sequence[RunFile]) -> Iterator[list[Row]]:
    for file in files:
        for each in file["measured"]:
            if each["what"] == SERVER:
                yield each["found"]["cores"]


def _cell(cell: Row) -> str:
    kept = "full + swa" if cell["window_tokens"] else "full"
    policy = f", {cell['host']['write_policy']}" if cell["host"] else ""
    return f"{kept}{policy}{', events' if cell['events'] else ''}"


def _ratio(cores: Mapping[str, Row], other: str, of: str) -> str:
    return f"{cores[OURS][of] / cores[other][of]:.2f}" if other in cores else DASH


def _waits(wait: Mapping[str, float]) -> str:
    return f"{wait['p50']:,.1f} / {wait['p99']:,.1f}"


def _cores_of(machine: Row) -> str:
    used = {1: "one core", 2: "two cores"}.get(machine["cores_used"])
    named = used or f"{machine['cores_used']} cores"
    return f"{named}, all at real-time priority" if machine["real_time"] else named
