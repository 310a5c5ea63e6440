"""Every command, option and target that the prose of the docs names exists.

The blocks are in `commands.toml`; this is about what stands between backticks, in the docs and in
the docstrings of the code.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from doc_blocks import BLOCK, pages
from kvcanon.conformance import cli
from kvcanon.lab import cli as lab_cli
from paths import ROOT

ROOMS = ("spec", "reference", "disk", "optimized", "live", "conformance", "lab", "tests")
INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TARGETS = frozenset(re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.MULTILINE))
VARIABLES = frozenset(re.findall(r"^(\w+) *\??=", MAKEFILE, re.MULTILINE))
OF_OTHERS = frozenset(
    {
        "--config-settings",  # pip
        "--disable-radix-cache",  # SGLang, as all up to --tp
        "--dtype",
        "--kv-transfer-config",  # vLLM
        "--hicache-mem-layout",
        "--hicache-storage-backend",
        "--hicache-storage-key-scheme",
        "--hicache-storage-prefetch-policy",
        "--enable-dp-attention",
        "--load-format",
        "--page-size",
        "--kv-cache-dtype",
        "--enable-decoder-swa-bounded-replay",
        "--enable-flexkv",
        "--enable-kv-cache-sharding",
        "--enable-lmcache",
        "--enable-metrics",
        "--enable-session-radix-cache",
        "--enable-unified-memory",
        "--radix-cache-backend",
        "--radix-eviction-policy",
        "--radix-eviction-policy-config",
        "--tp",
        "--kv-events-config",  # vLLM and SGLang
        "--enable-prompt-tokens-details",  # vLLM
        "--kv-block-size",  # Parallax
        "--portion",  # `python -m kvcanon.lab.servers`, through `make engine`
    }
)
"""Options of other programs that the docs name."""


def mentions(path: Path) -> Iterator[str]:
    """What stands between backticks in a file, on one line each, without the blocks of a page."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        text = BLOCK.sub("", text)
    for found in INLINE.finditer(text):
        if "\n\n" not in found[1]:
            yield " ".join(found[1].split())


def missing(mention: str) -> str | None:
    """What does not exist of a command that is mentioned; None where all of it does."""
    if made := re.fullmatch(r"make ([a-z][\w-]*)((?: \w+=\S+)*)", mention):
        wanted = [*({made[1]} - TARGETS), *(set(re.findall(r"(\w+)=", made[2])) - VARIABLES)]
        return ", ".join(wanted) or None
    if called := re.fullmatch(r"(?:\S*/)?kvcanon ([a-z-].*)", mention):
        name, rest = split_name(tuple(shlex.split(called[1])))
        if not name or name in GROUPS:
            return rest[0] if rest and not rest[0].startswith("-") else None
        given = {each.partition("=")[0] for each in rest if each.startswith("--")}
        return ", ".join(sorted(given - OPTIONS[name])) or None
    return None


Words = tuple[str, ...]


def split_name(arguments: Words) -> tuple[Words, Words]:
    """The words that name a command, and the arguments after them."""
    length = 0
    while length < len(arguments) and arguments[: length + 1] in OPTIONS:
        length += 1
    return arguments[:length], arguments[length:]


def read_commands() -> tuple[dict[Words, set[str]], set[Words]]:
    """The options of each command by its name, and the names of groups of commands."""
    options, groups = dict[Words, set[str]](), set[Words]()
    left: list[tuple[Words, Any]] = [
        ((), get_command(cli.COMMANDS.app())),
        (("lab",), get_command(lab_cli.COMMANDS.app())),
    ]
    while left:
        name, command = left.pop()
        options[name] = {"--help"}.union(
            *(each.opts + each.secondary_opts for each in command.params)
        )
        below: dict[str, Any] = getattr(command, "commands", {})
        left += [((*name, word), each) for word, each in below.items()]
        groups |= {name} if below else set()
    return options, groups


OPTIONS, GROUPS = read_commands()


@pytest.mark.parametrize(
    "mention", ["make tea", "make check CUPS=2", "kvcanon brew", "kvcanon check x --hot"]
)
def test_a_stale_mention_is_found(mention: str) -> None:
    """A target, a variable, a command or an option that does not exist is noticed."""
    assert missing(mention) in {"tea", "CUPS", "brew", "--hot"}


def test_prose_names_only_commands_that_exist() -> None:
    """Each command between backticks, in the docs and in docstrings, is one of today's."""
    code = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    own = {Path(__file__).resolve()}
    named = [
        (path, each)
        for path in [*pages(), *code]
        if path.resolve() not in own
        for each in mentions(path)
        if re.match(r"(?:\S*/)?kvcanon |make ", each) and "{" not in each
    ]
    assert len(named) > 100
    wrong = [f"{path.relative_to(ROOT)}: `{each}`" for path, each in named if missing(each)]
    assert wrong == []


def test_prose_names_only_options_of_the_commands_of_its_page() -> None:
    """An option between backticks is one of a command that the page shows or names."""
    wrong = []
    for page in pages():
        text = page.read_text("utf-8")
        calls = re.findall(r"kvcanon ([a-z][a-z-]*(?: [a-z]+)*)", text)
        names = {split_name(tuple(each.split()))[0] for each in calls} - {()}
        known = OF_OTHERS.union(*(OPTIONS[name] for name in names))
        wrong += [
            f"{page.relative_to(ROOT)}: `{each}`"
            for each in mentions(page)
            if (option := re.match(r"--[a-z][\w-]*(?=[ =]|$)", each))
            and not option[0].startswith("--kvcanon-")
            and option[0] not in known
        ]
    assert wrong == []
