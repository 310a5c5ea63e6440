"""Environments of projects without a release: their cache is copied from a folder."""

from __future__ import annotations

import json
import subprocess
import venv
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

import pytest

from command_line import read, usage_error
from kvcanon.conformance.cli import main
from kvcanon.conformance.engines.package_version import source_module
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.releases.catalogue import RELEASES, Release, SourceFiles
from kvcanon.lab.releases.environment import BESIDE, MANIFEST, commands, make
from kvcanon.lab.releases.source import SOURCE, digest_of
from kvcanon.lab.releases.stand_ins import minisgl_kernel

NANO = RELEASES["nano-vllm"]
SOURCES = [release for release in RELEASES.values() if release.source is not None]


class Recorded:
    """Runs only the creation of the environment itself, which has no pip."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []

    def __call__(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        """Record a command."""
        self.commands.append(list(command))
        if command[1:3] == ["-m", "venv"]:
            venv.create(command[3], with_pip=False)


def files_of(release: Release) -> SourceFiles:
    """Return the files that are copied for a release."""
    assert release.source is not None
    return release.source


def project(folder: Path, release: Release = NANO, text: str = "# As published.\n") -> Path:
    """Make a source folder with all files of a cache, and one more."""
    source = files_of(release)
    for file in (*source.files, "setup.py"):
        path = folder / source.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder."""
    named = ("-c", "user.name=a", "-c", "user.email=a@b")
    command = ["git", "-C", str(folder), *named, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def manifest_of(folder: Path) -> dict[str, str]:
    """Return the manifest of an environment."""
    read: dict[str, str] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return read


@pytest.mark.parametrize("release", SOURCES, ids=lambda release: release.peer)
def test_only_the_files_of_the_cache_are_copied(release: Release, tmp_path: Path) -> None:
    """The environment has the cache's files, and nothing else of the project."""
    ran = Recorded()
    peer = make(release, tmp_path, ran, project(tmp_path / "their", release))
    copied = peer.packages / SOURCE
    found = {path.relative_to(copied).as_posix() for path in copied.rglob("*") if path.is_file()}
    assert found == set(files_of(release).files)
    assert (peer.packages / f"{SOURCE}.pth").read_text(encoding="utf-8") == f"{SOURCE}\n"
    assert (peer.packages / BESIDE / "kvcanon").is_symlink()
    assert ran.commands[:-1] == commands(release, peer.folder)
    assert not any(release.peer in command[-1].split("==") for command in ran.commands[:-1])


def test_torch_is_installed_only_where_it_is_pinned() -> None:
    """nano-vllm's block manager needs no torch, mini-sglang's cache does."""
    has = {
        release.peer: any("torch" in command for command in commands(release, Path("there")))
        for release in SOURCES
    }
    assert has == {"nano-vllm": False, "mini-sglang": True, "lightllm": True, "sglang-jax": False}


def test_commit_and_digest_are_recorded(tmp_path: Path) -> None:
    """The commit is that of a checkout whose cache files are unchanged."""
    source = project(tmp_path / "their")
    git(source, "init", "-q")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "All")
    commit = git(source, "rev-parse", "HEAD")
    peer = make(NANO, tmp_path, Recorded(), source)
    digest = digest_of(source, files_of(NANO))
    assert peer.copied == f"commit {commit}, SHA-256 of its cache files {digest}"
    assert manifest_of(peer.folder)["source"] == peer.copied

    (source / "setup.py").write_text("# Not of the cache.\n", encoding="utf-8")
    assert make(NANO, tmp_path, Recorded(), source).copied == peer.copied
    (source / files_of(NANO).files[0]).write_text("# Changed.\n", encoding="utf-8")
    changed = make(NANO, tmp_path, Recorded(), source).copied
    assert changed == f"no commit, SHA-256 of its cache files {digest_of(source, files_of(NANO))}"
    assert digest not in changed


def test_folder_inside_another_repository_has_no_commit(tmp_path: Path) -> None:
    """Files that the repository around them does not track are of none of its commits."""
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "--allow-empty", "-qm", "Nothing")
    peer = make(NANO, tmp_path / "peers", Recorded(), project(tmp_path / "their"))
    assert peer.copied.startswith("no commit, SHA-256")


def test_second_make_copies_again_or_keeps_what_is_there(tmp_path: Path) -> None:
    """Nothing is installed again; another source takes the place of the first."""
    made = make(NANO, tmp_path, Recorded(), project(tmp_path / "one"))
    file = made.packages / SOURCE / files_of(NANO).files[0]
    kept = Recorded()
    assert make(NANO, tmp_path, kept).copied == made.copied
    assert kept.commands == []
    again = Recorded()
    second = make(NANO, tmp_path, again, project(tmp_path / "two", text="# Newer.\n"))
    assert file.read_text(encoding="utf-8") == "# Newer.\n"
    assert second.copied == manifest_of(second.folder)["source"]
    ((_, flag, code),) = again.commands
    assert (flag, NANO.probe in code) == ("-c", True)


@pytest.mark.parametrize("release", SOURCES, ids=lambda release: release.peer)
def test_missing_source_is_told_in_one_line(
    release: Release, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a folder, or with one that is not the project's, nothing is made."""
    wanted = ("lab", "peers", "make", release.name, "--into", str(tmp_path / "peers"))
    assert usage_error(capsys, *wanted) == (
        f"kvcanon: no package index has {release.name}; name a folder with its source by --source"
    )
    assert usage_error(capsys, *wanted, "--source", str(tmp_path)).endswith(
        f"has no {files_of(release).files[0]}; name the folder of {release.name} itself"
    )
    assert not (tmp_path / "peers").exists()


def test_source_of_a_published_release_is_refused(tmp_path: Path) -> None:
    """A release that is installed from an index takes no folder."""
    with pytest.raises(UsageError, match="comes from the package index; leave out --source"):
        make(RELEASES["lmdeploy==0.18.0"], tmp_path, Recorded(), tmp_path)


def test_folder_that_does_not_exist_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line names the folder."""
    missing = str(tmp_path / "nowhere")
    asked = ["lab", "peers", "make", "nano-vllm", "--source", missing, "--into", str(tmp_path)]
    assert main(asked) == 2
    assert "nowhere" in "".join(capsys.readouterr().err.split())


def test_command_says_what_was_copied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command prints the digest of the copy, and no stand-ins where there are none."""
    monkeypatch.setattr(import_module("kvcanon.lab.cli.peers"), "run_command", Recorded())
    source = project(tmp_path / "their")
    asked = ("lab", "peers", "make", "nano-vllm", "--source", str(source), "--into", str(tmp_path))
    printed = read(capsys, *asked)
    digest = digest_of(source, files_of(NANO))
    assert f"Its cache is a copy: no commit, SHA-256 of its cache files {digest}." in printed
    assert "Stand-ins" not in printed


def test_dry_run_says_what_would_be_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run needs no source."""
    asked = ("lab", "peers", "make", "nano-vllm", "--dry-run", "--into", str(tmp_path))
    assert "nano-vllm-source.txt" in read(capsys, *asked)


def test_missing_engine_says_how_to_make_it() -> None:
    """A module that is missing, and one that needs what is missing, are told apart."""
    with pytest.raises(UsageError, match="`kvcanon lab peers make nobody --source DIR` makes"):
        source_module("nobody_has_this.cache", "nobody")


def test_module_that_needs_a_missing_one_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The missing module is named."""
    (tmp_path / "needy_engine.py").write_text("import nobody_has_this\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match=r"cannot be used here: .*nobody_has_this"):
        source_module("needy_engine", "needy")


def test_stand_in_compares_keys_as_the_original() -> None:
    """It counts the leading elements that are equal, and refuses other types."""
    torch = pytest.importorskip("torch", reason="the stand-in is for tensors")
    compare = minisgl_kernel.fast_compare_key
    one = torch.tensor([1, 2, 3])
    for other, shared in (([1, 2, 3], 3), ([1, 2], 2), ([1, 5, 3], 1), ([7], 0), ([1, 2, 3, 4], 3)):
        assert compare(one, torch.tensor(other)) == shared
    with pytest.raises(TypeError, match=r"torch\.int64 and torch\.int32"):
        compare(one, torch.tensor([1], dtype=torch.int32))
