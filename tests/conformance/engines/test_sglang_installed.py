"""If SGLang is missing or cannot be used, a check says so in one line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import said
from kvcanon.conformance.cli import main
from kvcanon.conformance.engines.sglang import release

FOUND = release._found  # It caches one installation, so tests clear it.


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Forget what was looked up, and remove fake modules."""
    FOUND.cache_clear()
    yield
    FOUND.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "sglang"]:
        del sys.modules[name]


def told(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a check prints, which is one line, with exit code 2."""
    assert main(["check", "sglang"]) == 2
    (line,) = said(capsys.readouterr().err)
    return line


def test_no_sglang_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Without SGLang one line says how to install it."""
    line = told(capsys)
    assert line.startswith("kvcanon: SGLang is not installed here; `kvcanon lab peers make sg")


@pytest.mark.parametrize(
    ("fails", "says"),
    [
        ("import triton_that_is_not_there", "No module named 'triton_that_is_not_there'"),
        ("raise RuntimeError('no CUDA driver')", "RuntimeError: no CUDA driver"),
        # What SGLang itself has: next, the stand-in for its kernels is looked for, or torch.
        ("class UnifiedTreeCore: pass", "makes an environment that has it, or a stand-in"),
    ],
)
def test_sglang_without_what_it_needs_is_one_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fails: str,
    says: str,
) -> None:
    """A missing module or GPU is named in one line."""
    package = tmp_path / "sglang" / "srt" / "mem_cache" / "unified_cache"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:3]):
        (folder / "__init__.py").touch()
    (package / "unified_tree_core.py").write_text(f"{fails}\n", encoding="utf-8")
    facts = tmp_path / "sglang-0.0.7.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Name: sglang\nVersion: 0.0.7\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    line = told(capsys)
    assert "cannot be used here: " in line
    assert says in line
