"""What a user installs: the built wheel, in an environment that has never seen the checkout.

The code lies in five folders at the top of the checkout, and src/kvcanon links to them. A link can
be followed in the checkout and dangle in a wheel, and a folder can be found as `spec` where only
`kvcanon.spec` should exist. Nothing but an installed wheel shows that neither happened.
"""

import fcntl
import os
import re
import stat
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import requires
from pathlib import Path

import pytest
from attrs import frozen

from paths import ROOT

PARTS = ("spec", "reference", "optimized", "live", "conformance")


def run(
    *command: str | Path, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command away from the checkout, and without the paths that this test run was given."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    own |= env or {}
    return subprocess.run(command, cwd=cwd, env=own, capture_output=True, text=True, check=False)


def run_well(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Run a command that must succeed, and return what it printed."""
    done = run(*command, cwd=cwd, env=env)
    assert done.returncode == 0, f"{command} exited {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def sources() -> dict[str, bytes]:
    """Return the Python files that a wheel must hold, by the path that each must have there."""
    own = ROOT / "src/kvcanon"
    own_files = ("__init__.py", "__main__.py", "py.typed")
    found = {f"kvcanon/{name}": own / name for name in own_files}
    for part in PARTS:
        for path in [*(ROOT / part).rglob("*.py"), *(ROOT / part).rglob("*.pyi")]:
            found[f"kvcanon/{path.relative_to(ROOT)}"] = path
    return {name: path.read_bytes() for name, path in found.items()}


@frozen
class Release:
    """What a release uploads, and an environment of a user who installed it."""

    home: Path

    @property
    def sdist(self) -> Path:
        """The source distribution."""
        (found,) = self.home.glob("dist/*.tar.gz")
        return found

    @property
    def wheel(self) -> Path:
        """The wheel, which was built from the source distribution."""
        (found,) = self.home.glob("dist/*.whl")
        return found

    @property
    def environment(self) -> Path:
        """The user's environment."""
        return self.home / "environment"

    @property
    def elsewhere(self) -> Path:
        """An empty folder to run commands from."""
        return self.home / "elsewhere"

    def run(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the user's environment."""
        return run(self.environment / "bin" / command, *arguments, cwd=self.elsewhere)

    def python(self, code: str) -> str:
        """Run code there that must succeed, and return what it printed."""
        return run_well(self.environment / "bin/python", "-c", code, cwd=self.elsewhere)


def build(release: Release) -> None:
    """Build the source distribution, and the wheel from that, as `make wheel` does."""
    build_both = (sys.executable, "-m", "build", "--no-isolation", "--outdir")
    run_well(*build_both, release.home / "dist", ROOT, cwd=release.elsewhere)


def build_without_compiler(release: Release, sdist: Path) -> None:
    """Build a wheel from a source distribution where the compiler fails."""
    pip_wheel = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation")
    target = ("--wheel-dir", release.home / "dist")
    run_well(*pip_wheel, *target, sdist, cwd=release.elsewhere, env={"CXX": "/bin/false"})


def install(release: Release) -> None:
    """Install the wheel alone, and lend its environment the third parties of this one.

    To lend is to append a path to the end of the search, so that no dependency is downloaded. The
    .pth files of a folder that is lent so are not read, and the editable install of the checkout,
    which is one, stays behind.
    """
    python = release.environment / "bin/python"
    pip_install = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    run_well(
        sys.executable, "-m", "venv", "--without-pip", release.environment, cwd=release.elsewhere
    )
    run_well(*pip_install, "--no-deps", "--no-index", release.wheel, cwd=release.elsewhere)
    own = release.python("import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    lent = sysconfig.get_path("purelib")
    (Path(own) / "lent.pth").write_text(f"{lent}\n", encoding="utf-8")


def once(base: Path, name: str, make: Callable[[Release], None]) -> Release:
    """Make a release once for all of this module's tests, in whichever workers they run."""
    # Each worker's folder lies in the run's; without workers the run has just the one.
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    release = Release(shared / name)
    release.elsewhere.mkdir(parents=True, exist_ok=True)
    done = release.home / "done"
    with (release.home / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            make(release)
            install(release)
            done.touch()
    return release


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """What is built where everything is there, as installed."""
    return once(tmp_path_factory.getbasetemp(), "release", build)


@pytest.fixture(scope="module")
def coreless(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """What is built from the same source where no compiler works, as installed."""
    make = partial(build_without_compiler, sdist=release.sdist)
    return once(tmp_path_factory.getbasetemp(), "coreless", make)


def test_source_package_holds_links_and_the_command() -> None:
    """src/kvcanon holds the command and the version; each part is a link to its folder."""
    folder = ROOT / "src/kvcanon"
    links = {path.name: str(path.readlink()) for path in folder.iterdir() if path.is_symlink()}
    assert links == {part: f"../../{part}" for part in PARTS}
    others = {path.name for path in folder.iterdir()} - links.keys() - {"__pycache__"}
    assert others == {"__init__.py", "__main__.py", "py.typed"}


def test_wheel_holds_every_source_file_under_one_name(release: Release) -> None:
    """The wheel holds the files behind the links, each once, all of them under kvcanon."""
    with zipfile.ZipFile(release.wheel) as wheel:
        assert not [
            entry.filename for entry in wheel.infolist() if stat.S_ISLNK(entry.external_attr >> 16)
        ]
        packed = {name for name in wheel.namelist() if name.endswith((".py", ".pyi", "py.typed"))}
        assert {name: wheel.read(name) for name in packed} == sources()
        tops = {name.split("/")[0] for name in wheel.namelist()}
    assert tops == {"kvcanon", "kvcanon-0.1.0.dist-info"}


def compiled(wheel: Path) -> list[str]:
    """Return what a wheel holds besides text: modules for one platform, and caches of Python's."""
    with zipfile.ZipFile(wheel) as opened:
        return [name for name in opened.namelist() if name.endswith((".pyc", ".so", ".a", ".o"))]


def test_wheel_fits_this_platform(release: Release) -> None:
    """The wheel says for which Python it was built, and holds one module that is compiled."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert release.wheel.name == f"kvcanon-0.1.0-{python}-{python}-{platform}.whl"
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert compiled(release.wheel) == [f"kvcanon/optimized/_core{suffix}"]


def test_wheel_leaves_native_sources_out(release: Release) -> None:
    """The sources of the core are in the source distribution; a wheel has no use for them."""
    with zipfile.ZipFile(release.wheel) as wheel:
        assert not [
            name
            for name in wheel.namelist()
            if name.startswith(("kvcanon/optimized/native", "kvcanon/live/native"))
        ]


def test_wheel_without_core_is_pure(coreless: Release) -> None:
    """A wheel without the core fits every platform, and is not taken for one that has it."""
    assert coreless.wheel.name == "kvcanon-0.1.0-py3-none-any.whl"
    assert compiled(coreless.wheel) == []


def test_wheel_carries_its_license(release: Release) -> None:
    """The license is in the wheel, word for word."""
    with zipfile.ZipFile(release.wheel) as wheel:
        packed = wheel.read("kvcanon-0.1.0.dist-info/licenses/LICENSE")
    assert packed == (ROOT / "LICENSE").read_bytes()


def test_sdist_holds_the_four_folders(release: Release) -> None:
    """The source distribution is shaped like the checkout: five folders, and links to them."""
    with tarfile.open(release.sdist) as sdist:
        entries = {member.name.partition("/")[2]: member for member in sdist.getmembers()}
    for part in PARTS:
        assert entries[f"{part}/__init__.py"].isfile()
        link = entries[f"src/kvcanon/{part}"]
        assert link.issym()
        assert link.linkname == f"../../{part}"
    assert entries["optimized/native/module.cpp"].isfile()
    # What was compiled in the checkout stays there: it is no source, and may be of another day.
    assert not [name for name in entries if name.endswith(".so")]


def test_installed_package_is_the_wheel(release: Release) -> None:
    """The package that is found is the installed one, not the checkout by some back door."""
    for part in ("spec", "reference", "conformance"):
        found = release.python(f"import kvcanon.{part} as part; print(part.__file__)")
        assert Path(found.strip()).is_relative_to(release.environment)


@pytest.mark.parametrize("part", PARTS)
def test_installed_parts_have_no_name_of_their_own(release: Release, part: str) -> None:
    """`import spec` finds nothing: the distribution takes one name, and leaves the others free."""
    done = release.run("python", "-c", f"import {part}")
    assert done.returncode == 1
    assert f"ModuleNotFoundError: No module named '{part}'" in done.stderr


def test_installed_optimized_has_its_core(release: Release) -> None:
    """The core that was compiled is the one that is found, and it works."""
    found = release.python(
        "import kvcanon.optimized._core as core\n"
        "import numpy as np\n"
        "print(core.__file__)\n"
        "print(core.page_hashes(b'', np.arange(4, dtype=np.uint32), 2).shape)"
    )
    path, shape = found.splitlines()
    assert Path(path).is_relative_to(release.environment)
    assert shape == "(2, 32)"


def test_without_core_optimized_says_how_to_mend_it(coreless: Release) -> None:
    """Without its core the fast cache is absent, and says so in one sentence with the mend."""
    done = coreless.run("python", "-c", "import kvcanon.optimized")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: kvcanon.optimized has no native core here")
    assert "install a C++17 compiler" in last


def test_without_numpy_optimized_says_how_to_mend_it(release: Release) -> None:
    """A missing package is named, with the command that installs it."""
    # -S leaves out what was lent, and with it numpy; the installed package is then named by hand.
    purelib = release.python("import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    code = f"import sys; sys.path.append({purelib!r}); import kvcanon.optimized"
    done = release.run("python", "-S", "-c", code)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: kvcanon.optimized needs numpy, which is not installed; "
        "run `pip install 'kvcanon[optimized]'`."
    )


def test_without_the_suite_the_command_says_how_to_mend_it(release: Release) -> None:
    """Without the suite's packages the command names one, and the install command; exit 2."""
    purelib = release.python("import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    run_command = "import runpy; runpy.run_module('kvcanon', None, '__main__')"
    code = f"import sys; sys.path.append({purelib!r}); {run_command}"
    done = release.run("python", "-S", "-c", code)
    assert done.returncode == 2
    assert "which is not installed; run `pip install 'kvcanon[suite]'`" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def needed(extra: str = "") -> set[str]:
    """The packages that the distribution requires, with an extra or without."""
    reached: set[str] = set()
    for line in requires("kvcanon") or ():
        name, _, condition = line.partition(";")
        if ("extra ==" in condition) == bool(extra) and (f'"{extra}"' in condition or not extra):
            reached.add(re.split(r"[^\w-]", name, maxsplit=1)[0].lower())
    return reached


def test_engines_get_no_test_tools() -> None:
    """The base install and the optimized cache pull in no package of the suite."""
    assert needed() == {"attrs"}
    assert needed("optimized") == {"numpy", "torch", "triton"}
    assert needed("suite") == {"hypothesis", "numpy", "pytest", "rich", "typer"}


@pytest.mark.parametrize("arguments", [("laws",), ("check", "reference", "--only", "vectors")])
def test_without_core_the_rest_works(coreless: Release, arguments: tuple[str, ...]) -> None:
    """Who only wants the suite needs no compiler."""
    done = coreless.run("kvcanon", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_installed_version_is_the_distributions(release: Release) -> None:
    """`kvcanon.__version__` comes from the metadata, so that it is written in one place."""
    assert release.python("import kvcanon; print(kvcanon.__version__)").strip() == "0.1.0"


@pytest.mark.parametrize(
    "arguments", [("--help",), ("laws",), ("check", "reference", "--only", "vectors")], ids=" ".join
)
def test_installed_command_answers(release: Release, arguments: tuple[str, ...]) -> None:
    """The command works as installed: it explains itself, and it prints the laws."""
    done = release.run("kvcanon", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_installed_suite_judges(release: Release) -> None:
    """Pytest finds the installed suite and its options."""
    asked = ("--pyargs", "kvcanon.conformance", "--kvcanon-cache", "reference", "-k", "TREE-1")
    done = release.run("python", "-m", "pytest", *asked)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
