"""Starts of servers that must be refused with one line that says what to do.

Each is a real server with what kvcanon's core does not offer, or with a mistake that users make. It
must end before it serves, and the last line of its log must name what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import Factory, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.servers.server_process import running
from kvcanon.lab.servers.server_setup import KVCANON, NO_HOST, WRITE_THROUGH, ServerSetup
from kvcanon.lab.servers.tiny_model import FULL_MODEL, make_model

CORE = "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"
HOW_BACK = f"unset {CORE}"


@frozen
class RefusedStart:
    """A server that must not start."""

    name: str
    words: tuple[str, ...]
    """What its last line has."""
    flags: tuple[str, ...] = ()
    host: str = NO_HOST
    variables: Mapping[str, str] = Factory(dict)
    another_release: str = ""
    """A release of SGLang that the environment claims to have."""
    without_core: bool = False
    """Whether kvcanon lacks its native core, as where it was installed without a compiler."""


def _flag(*flags: str, host: str = NO_HOST) -> RefusedStart:
    """What is refused by its first flag."""
    return RefusedStart(flags[0].strip("-"), (flags[0], HOW_BACK), flags, host)


STORE = '{"linker_module_path": "store", "linker": "Store"}'
NOT_ON_A_CPU = (
    *("--enable-unified-memory", "--enable-kv-cache-sharding", "--enable-int8-mamba-checkpoint"),
    *("--enable-decoder-swa-bounded-replay", "--enable-lmcache", "--radix-cache-backend"),
)
"""What SGLang itself refuses without a GPU, has for models alone that no CPU serves, or has
from another package."""
STARTS = (
    _flag(
        *("--hicache-host-memory-mode", "buffer_only", "--hicache-storage-backend", "file"),
        host=WRITE_THROUGH,
    ),
    _flag(
        "--enable-unified-cache-external-linker",
        *("--unified-cache-external-linker-backend", "dynamic"),
        *("--unified-cache-external-linker-config", STORE),
    ),
    _flag("--enable-session-radix-cache"),
    _flag(
        *("--radix-eviction-policy", "tlru"),
        *("--radix-eviction-policy-config", '{"threshold": 64, "next_prompt_estimate": 8}'),
    ),
    _flag(
        *("--radix-eviction-policy-config", '{"protected_threshold": 3}'),
        *("--radix-eviction-policy", "slru"),
    ),
    RefusedStart("misspelt", (f"{CORE}='kvcannon'", "'kvcanon'"), variables={CORE: "kvcannon"}),
    RefusedStart("other-plugins", (f"{CORE}='kvcanon'",), variables={"SGLANG_PLUGINS": "other"}),
    RefusedStart("no-native-core", ("no native core", "pip install --force"), without_core=True),
    RefusedStart("newer-sglang", ("sglang==0.5.23", "0.5.24", HOW_BACK), another_release="0.5.24"),
    RefusedStart("older-sglang", ("sglang==0.5.23", "0.5.22", HOW_BACK), another_release="0.5.22"),
)


def run_refusals(folder: Path, seed: int, only: str, say: Callable[[str], None]) -> list[str]:
    """Try each start; returns those that were not refused as they should be."""
    model = folder / FULL_MODEL
    make_model(FULL_MODEL, seed).save_pretrained(model)
    wrong = []
    for start in STARTS:
        if only not in start.name:
            continue
        said = refusal(start, model, folder)
        say(f"{start.name}: {said or 'IT STARTED'}")
        if not all(words in said for words in start.words):
            wrong.append(start.name)
    return wrong


def refusal(start: RefusedStart, model: Path, folder: Path) -> str:
    """Start a server; returns why it ended, or nothing if it serves."""
    own = folder / start.name
    own.mkdir(parents=True, exist_ok=True)
    if start.another_release:
        _claim(own / "plugins", start.another_release)
    if start.without_core:
        _hide(own / "plugins", "kvcanon.optimized._core")
    setup = ServerSetup(FULL_MODEL, KVCANON, start.host, flags=start.flags)
    try:
        with running(setup, model, own, start.variables):
            return ""
    except UsageError as ended:
        return str(ended)


def _claim(folder: Path, release: str) -> None:
    """Let a folder of the import path say that another release of SGLang is installed."""
    facts = folder / f"sglang-{release}.dist-info" / "METADATA"
    facts.parent.mkdir(parents=True)
    facts.write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {release}\n", "utf-8")


def _hide(folder: Path, module: str) -> None:
    """Let a folder of the import path hide a module from every process."""
    folder.mkdir(parents=True)
    hidden = f"import sys\nsys.modules[{module!r}] = None\n"
    (folder / "sitecustomize.py").write_text(hidden, encoding="utf-8")
