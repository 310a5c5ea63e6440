"""Every command of the docs is run, or says why not; every Python block is run by some test."""

from __future__ import annotations

import inspect
import json
import logging
import re
import shlex
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch.distributed as dist
from attrs import evolve
from typer.main import get_command

from doc_blocks import Shown, commands, python_blocks
from kvcanon.conformance import Adapter, GuardedCache, cli, draw_case, guard, play, production_guard
from kvcanon.conformance.check.plan import EFFORTS
from kvcanon.lab import cli as lab_cli
from kvcanon.optimized.prefix_cache import PrefixCache
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheError
from kvcanon.spec.types import Counts, Slots, make_key
from paths import ROOT

TABLE: list[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("commands.toml").read_text("utf-8")
)["command"]
COMMANDS = commands()
RUN = [each for each in TABLE if "arguments" in each]
TESTED = {
    "README.md": "tests/docs/test_readme.py",
    "docs/adapters.md": "tests/docs/test_adapter_docs.py",
    "docs/check.md": "tests/conformance/cli/test_check_cli.py",
    "docs/pytest.md": "tests/conformance/pytest_plugin/test_check_cache.py",
    "docs/stores.md": "tests/external/test_below_a_cache.py",
}
"""The test that runs the Python of a page."""
HERE = {"CONTRIBUTING.md"} | {
    f"docs/{name}.md"
    for name in ("ci", "engine-api", "guard", "live", "optimized", "ranks", "run-it-on-your-cache")
}
"""Pages whose Python is run below."""
TRACE = [
    {"timestamp": 100 * at, "input_length": 1200, "output_length": 3, "hash_ids": [1, 2, at]}
    for at in range(20)
]


def block(page: str, number: int = 0) -> str:
    """A Python block of a page."""
    return [body for of_page, body in python_blocks() if of_page == page][number]


def run(source: str, **names: Any) -> dict[str, Any]:  # noqa: ANN401 # What a page defines.
    """What the Python of a page defines, beside these names."""
    exec(source, names)  # noqa: S102 # Our own page.
    return names


@pytest.fixture(name="_caches")
def folder_of_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Works in a folder with the caches that the docs name, and judges few cases."""
    make = "from kvcanon.reference import ReferenceCache as make_cache\n"
    (tmp_path / "my_module.py").write_text(make, "utf-8")
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "my_module.py").write_text(make, "utf-8")
    (tmp_path / "my_cache.py").write_text(
        block("docs/check.md") + block("docs/run-it-on-your-cache.md").replace("MyCache", "Mine"),
        "utf-8",
    )
    for name in ("conversation_trace.jsonl", "trace.jsonl"):
        lines = "".join(f"{json.dumps(line)}\n" for line in TRACE)
        (tmp_path / name).write_text(lines, "utf-8")
    (tmp_path / "DIR").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    few = evolve(
        EFFORTS["quick"],
        walker_cases=12,
        machine_cases=0,
        ranks_cases=0,
        corpus_cases=0,
        store_cases=4,
    )
    monkeypatch.setitem(EFFORTS, "quick", few)


def test_table_has_every_command_and_no_other() -> None:
    """Each command that a page shows is in the table once, and each entry is on a page."""
    listed = [shown for each in TABLE for shown in each["shown"]]
    assert sorted(set(listed)) == sorted(listed)
    shown = {each.command for each in COMMANDS}
    assert sorted(shown - set(listed)) == []
    assert sorted(set(listed) - shown) == []


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: str(entry["shown"][0])[:60])
def test_entry_says_one_thing(entry: dict[str, Any]) -> None:
    """An entry has arguments, a test that exists, or a reason."""
    (how,) = entry.keys() & {"arguments", "tested_by", "not_run"}
    if how == "tested_by":
        assert (ROOT / entry["tested_by"]).is_file()
    elif how == "not_run":
        assert entry["not_run"].endswith(".")


@pytest.mark.parametrize(
    "shown",
    [each for each in COMMANDS if re.match(r"(\S*/)?kvcanon ", each.command)],
    ids=lambda each: each.command[:60],
)
@pytest.mark.usefixtures("_caches")
def test_command_line_knows_every_option(shown: Shown) -> None:
    """The real command line reads each command of kvcanon, whether or not a test runs it."""
    arguments = shlex.split(shown.command)[1:]
    in_lab = arguments[0] == "lab"
    command: Any = get_command((lab_cli if in_lab else cli).COMMANDS.app())
    arguments = arguments[in_lab:]
    while hasattr(command, "commands"):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    command.make_context("kvcanon", arguments)


@pytest.mark.parametrize("entry", RUN, ids=lambda entry: str(entry["shown"][0])[:60])
@pytest.mark.usefixtures("_caches")
def test_command_runs(entry: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """A command ends as it should, and says something."""
    code = cli.main(entry["arguments"])
    said = capsys.readouterr()
    assert (code, "Traceback" in said.err) == (entry.get("code", 0), False), said.out + said.err
    assert said.out
    if "--scripts" in entry["arguments"]:
        (script, *_) = sorted(Path("scripts").iterdir())
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stderr


def test_every_page_with_python_is_tested() -> None:
    """The Python of a page is run here, by a test that names the page, or as a finding's script."""
    pages = {page for page, _ in python_blocks() if not page.startswith("docs/findings/")}
    assert sorted(pages) == sorted(TESTED.keys() | HERE)
    for page, test in TESTED.items():
        helper = "adapter_page" if page == "docs/adapters.md" else Path(page).name
        assert helper in (ROOT / test).read_text("utf-8")


def test_contributing_shows_a_real_mutant() -> None:
    """The mutant of CONTRIBUTING.md is one of the mutants, word for word, and its tests exist."""
    planted = ROOT / "lab/mutants/planted/event.py"
    assert block("CONTRIBUTING.md") in planted.read_text("utf-8")
    for each in COMMANDS:
        for path in re.findall(r"(?:lab/)?tests/\S+\.py", each.command):
            assert (ROOT / path).is_file()


def test_engine_api_page_runs() -> None:
    """The calls of docs/engine-api.md work, and find the prompt."""
    names = run(block("docs/engine-api.md"))
    assert names["found"].end != names["nodes"].root()
    assert len(names["step"].device[0]) == 4


def test_live_page_publishes() -> None:
    """The publisher of docs/live.md takes what the cache packed."""
    cache = PrefixCache(CacheConfig(device_slots=Counts(full=4)))
    source = block("docs/live.md")
    for port in ("5557", "5558"):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            source = source.replace(port, str(free.getsockname()[1]))
    run(source, cache=cache)["publisher"].close()


def test_ranks_page_runs(tmp_path: Path) -> None:
    """Both ways of docs/ranks.md to agree work, on a single rank."""
    config = CacheConfig(device_slots=Counts(full=4))
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    try:
        names = run(block("docs/ranks.md"), config=config, pools=None)
        names = run(block("docs/ranks.md", 1), **names, gather=lambda arrived: [arrived])
        assert names["cache"].config == config
    finally:
        dist.destroy_process_group()


def test_first_example_of_the_guard_judges_each_call(capsys: pytest.CaptureFixture[str]) -> None:
    """The example prints what it found, and that all three calls were judged."""
    run(block("docs/guard.md"))
    assert capsys.readouterr().out == "3 pages found; 3 calls judged\n"


def test_guard_of_an_engine_logs_violations(caplog: pytest.LogCaptureFixture) -> None:
    """The third example makes a guard that logs; the page has each option of both guards.

    Only a judge needs `new`.
    """
    names = run(block("docs/guard.md", 2))
    assert isinstance(names["cache"], GuardedCache)
    names["log"]("REC-1 window_only_refresh: said so", None)
    assert "said so" in caplog.text
    options = inspect.signature(guard).parameters.keys() - {"cache", "new"}
    options |= inspect.signature(production_guard).parameters.keys() - {"cache"}
    page = (ROOT / "docs/guard.md").read_text("utf-8")
    assert not [name for name in options if f"`{name}`" not in page]


def test_guard_in_production_counts_a_call(capsys: pytest.CaptureFixture[str]) -> None:
    """The second example prints the counts of a guard that has had one call."""
    run(block("docs/guard.md", 1))
    assert capsys.readouterr().out.startswith("GuardCounts(calls=1, judged=0,")


def test_snippets_of_the_fast_cache_print_what_the_page_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The snippets of docs/optimized.md, pasted in order, print what the page shows."""
    page = (ROOT / "docs/optimized.md").read_text("utf-8")
    fence = r"^```python\n(.+?)^```$(?:\n\n^```\n(.+?)^```$)?"
    snippets = re.findall(fence, page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    for snippet, output in snippets:
        names = run(snippet, **names)
        assert capsys.readouterr().out == output
    assert isinstance(names["cache"], PrefixCache)
    names["cache"].tree.check()
    assert len([output for _, output in snippets if output]) == 12


def test_page_of_the_fast_cache_has_every_call_and_every_refusal() -> None:
    """The tables of docs/optimized.md list every public call and every refusal."""
    page = (ROOT / "docs/optimized.md").read_text("utf-8")
    calls, cache = page[page.index("## All calls") :], PrefixCache(CacheConfig())
    public = {
        name for name in dir(cache) if not name.startswith("_") and callable(getattr(cache, name))
    }
    assert {name for name in public if f"`{name}(" not in calls} == set()
    refusals = {each.__name__ for each in CacheError.__subclasses__()}
    assert {name for name in refusals if f"| `{name}` |" not in page} == set()


@pytest.mark.parametrize("mended", [False, True])
def test_cache_of_the_page_for_newcomers_is_as_it_says(mended: bool) -> None:
    """The cache of the page breaks ALLOC-1, and nothing once it is mended."""
    source, right = (block("docs/run-it-on-your-cache.md", number) for number in range(2))
    begin = source.index("        for page, slot in enumerate(slots.full, start_pages):")
    end = source.index("    def find")
    assert len(source[begin:end].strip("\n").splitlines()) == 4
    if mended:
        source = f"{source[:begin]}{right}\n{source[end:]}"
    adapter = run(source)["ADAPTER"]
    assert isinstance(adapter, Adapter)
    found = [each for n in range(40) for each in play(draw_case(n, adapter.offer), [adapter])[0]]
    assert {each.name for each in found} == (set() if mended else {"ALLOC-1"})


class Leaky(ReferenceCache):
    """Forgets the slots that it is given back."""

    def free(self, slots: Slots) -> None:
        """Do nothing."""


@pytest.mark.parametrize(("make", "logged"), [(ReferenceCache, False), (Leaky, True)])
def test_canary_logs_broken_laws_and_goes_on(
    make: type[ReferenceCache],
    logged: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The guarded cache of docs/ci.md judges its operations, logs broken laws, and never raises."""
    module: Any = ModuleType("my_package.my_module")
    module.make_cache = make
    monkeypatch.setitem(sys.modules, "my_package", ModuleType("my_package"))
    monkeypatch.setitem(sys.modules, "my_package.my_module", module)
    source = block("docs/ci.md")
    assert "rate=0.001" in source
    make_canary = run(source.replace("rate=0.001", "rate=1, budget=None"))["make_canary"]
    with caplog.at_level(logging.ERROR):
        cache = make_canary(CacheConfig(device_slots=Counts(full=4)))
        cache.free(cache.allocate(Counts(full=2)))
        assert cache.match(make_key([1, 2], 1)).prefix_pages == 0
    assert cache.counts.judged == 3
    assert bool(caplog.records) is logged
    assert all("Free(" in each.getMessage() for each in caplog.records[:1])
