"""Bad inputs: each ends in one clear line and the right exit code; bad_inputs.toml lists them."""

from __future__ import annotations

import json
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic, process_time
from typing import Any

import pytest
from attrs import frozen

from command_line import said
from few_cases import FEW, check_here
from kvcanon.conformance.check.plan import EFFORTS
from kvcanon.conformance.cli import main
from kvcanon.conformance.protocol import pipe
from kvcanon.conformance.protocol.tree import ESSENTIAL
from kvcanon.conformance.workers.allowance import VARIABLE
from nights import at_night

MOST_SECONDS = 30.0
"""No bad input is silent for longer; of findings the processor time counts, as a check has its own
limit."""

TABLE: Mapping[str, list[list[Any]]] = tomllib.loads(
    Path(__file__).with_name("bad_inputs.toml").read_text("utf-8")
)

HEAD = """
import sys
from attrs import evolve
from kvcanon.conformance import Adapter, CacheKind, Offer
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.law import Need
from kvcanon.spec.operations import *
from kvcanon.spec.types import *
"""

GOOD = f"""{HEAD}
class SoundCache(ReferenceCache):
    pass
"""

HELLO = {"protocol": "kvcanon-pipe/1", "name": "mine", "operations": list(ESSENTIAL)}

BY_REQUESTS = ("admit", "extend", "finish", "abort")


@frozen
class Row:
    """A bad input, and what is expected of the command."""

    section: str
    number: int
    method: str
    """Of an answer alone."""
    source: str
    """The bad input itself."""
    says: Sequence[str]
    """Words of the message."""
    needs: Mapping[str, Any]

    @property
    def code(self) -> int:
        """The expected exit code."""
        return 1 if self.section == "answer" else 2


def row_of(section: str, number: int, written: list[Any]) -> Row:
    """A row as it is written."""
    texts = [each for each in written if isinstance(each, str)]
    needs = written[-1] if len(texts) < len(written) else {}
    method = texts.pop(0) if section == "answer" else ""
    source, *says = texts
    assert says
    return Row(section, number, method, source, says, needs)


ROWS = [
    row_of(section, number, written)
    for section, rows in TABLE.items()
    for number, written in enumerate(rows, 1)
]


DEADLY = [row for row in ROWS if row.section == "answer" and row.needs.keys() & {"apart", "limit"}]
"""Answers that end or block a process; by day one of them is played."""


def module_of(row: Row) -> str:
    """The module bad.py of a row."""
    source = row.source
    match row.section:
        case "offer":
            return f"{HEAD}\nADAPTER = Adapter('mine', ReferenceCache, {source})\n"
        case "adapter":
            return f"{HEAD}\nADAPTER = {source}\n"
        case "factory":
            made = "ADAPTER = Adapter('mine', make)"
            return f"{HEAD}\ndef make(config):\n    {source}\n\n{made}\n"
        case "answer":
            return f"{HEAD}\n{answering(row.method, source)}"
        case _:
            return source


def answering(method: str, body: str) -> str:
    """A cache whose method has this body; `was` is what the sound method answers."""
    takes = {"free": ", slots", "abort": ", request_id"}.get(method, "")
    base, adapter = "ReferenceCache", "Adapter('mine', Odd)"
    if method in BY_REQUESTS:
        base = "HashBlockCache"
        adapter = "Adapter('mine', Odd, OFFER, kind=CacheKind.REQUEST)"
    return (
        "from hash_blocks import HashBlockCache, OFFER\n"
        f"class Odd({base}):\n"
        f"    def {method}(self{takes}, *args, **more):\n"
        f"        was = super().{method}({takes.removeprefix(', ')}"
        f"{', ' if takes else ''}*args, **more)\n"
        f"        {body}\n"
        f"ADAPTER = {adapter}\n"
    )


def arguments_of(row: Row, folder: Path) -> list[str]:
    """The command line of a row; it writes the files that the command needs."""
    (folder / "good.py").write_text(GOOD, "utf-8")
    if row.section == "options":
        for name, text in row.needs.get("files", {}).items():
            (folder / name).write_text(text, "utf-8")
        (folder / "empty").mkdir()
        return shlex.split(row.source.replace("{folder}", str(folder / "empty")))
    if row.section in ("pipe", "hello"):
        said = HELLO | (json.loads(row.source) if row.section == "hello" else {})
        body = (
            row.source
            if row.section == "pipe"
            else "print(HELLO, flush=True)\nfor _ in sys.stdin: print('{\"ok\": null}', flush=True)"
        )
        script = folder / "child.py"
        script.write_text(f"import sys\nHELLO = {json.dumps(said)!r}\n{body}\n", "utf-8")
        return ["check", f"pipe:{sys.executable} -u {script}", "--jobs", "1"]
    # A process keeps the caches that it judged by their names.
    name = f"bad_{row.number}" if row.section == "answer" else "bad"
    (folder / f"{name}.py").write_text(module_of(row), "utf-8")
    stages = row.needs.get("stages", "walker")
    return ["check", f"{name}:ADAPTER", "--jobs", "1", "--only", stages]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in an empty folder, without the modules of earlier rows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in [each for each in sys.modules if each == "good" or each.startswith("bad")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "row",
    [*[row for row in ROWS if row not in DEADLY[1:]], *at_night(*DEADLY[1:])],
    ids=lambda row: f"{row.section}-{row.number}",
)
def test_bad_input_is_one_clear_line(
    row: Row, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad input ends soon, with its exit code, and with words that name it and the mend."""
    monkeypatch.setitem(EFFORTS, "quick", FEW)
    monkeypatch.setattr(pipe, "HELLO_SHARE", 0.03)  # Of waiting, ten times as much.
    if not row.needs.keys() & {"apart", "limit"}:
        check_here(monkeypatch)
    if "limit" in row.needs:
        monkeypatch.setenv(VARIABLE, str(row.needs["limit"]))
    arguments = arguments_of(row, folder)
    clock = monotonic if row.code == 2 else process_time
    began = clock()
    code = main(arguments)
    took = clock() - began
    printed = capfd.readouterr()
    assert code == row.code, printed.out + printed.err
    assert "Traceback" not in printed.out + printed.err
    if code == 2:
        (line,) = said(printed.err)
        assert line.startswith("kvcanon: ")
        assert bool(printed.out) == row.needs.get("stdout", False)
        message = line
    else:
        # On a busy machine a check may have to say that it goes on.
        assert said(printed.err) == []
        message = " ".join(printed.out.split())
    for words in row.says:
        assert words in message
    assert took < MOST_SECONDS
