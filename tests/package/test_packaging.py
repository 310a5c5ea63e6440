"""What a user installs: the built wheel, in an environment that has never seen the checkout.

The code lies in seven folders at the top of the checkout, and src/kvcanon links to them. A link can
be followed in the checkout and dangle in a wheel, and a folder can be found as `spec` where only
`kvcanon.spec` should exist. Nothing but an installed wheel shows that neither happened.
"""

import re
import stat
import sys
import sysconfig
import tarfile
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest

from installed import NO_COMPILER, NO_CORE, Release, build, build_sdist, installed, pip_wheel
from paths import ROOT

PARTS = ("spec", "reference", "disk", "external", "optimized", "live", "conformance")
OWN_FILES = {
    "__init__.py",
    "__main__.py",
    "commit.py",
    "printable.py",
    "py.typed",
    "run_record.py",
    "sglang_plugin.py",
    "sglang_release.py",
    "store_breaker.py",
    "vllm_plugin.py",
}
STUBS = {"kvcanon/optimized/_core.pyi": "class Nodes:", "kvcanon/live/_stream.pyi": "class Ledger:"}
"""What the build generates for type checkers, and a line of each."""

SMALL_SUITE = """
import sys
import pytest
from attrs import evolve
from kvcanon.conformance.check.plan import EFFORTS
EFFORTS["quick"] = evolve(
    EFFORTS["quick"], walker_cases=12, machine_cases=0, ranks_cases=0, corpus_cases=0, store_cases=0
)
sys.exit(pytest.main(sys.argv[1:]))
"""
"""Runs pytest; a quick check then plays few cases."""


def sources() -> dict[str, bytes]:
    """Return the Python files that a wheel must hold, by the path that each must have there."""
    own = ROOT / "src/kvcanon"
    found = {f"kvcanon/{name}": own / name for name in OWN_FILES}
    for part in PARTS:
        for path in (ROOT / part).rglob("*.py"):
            found[f"kvcanon/{path.relative_to(ROOT)}"] = path
    return {name: path.read_bytes() for name, path in found.items()}


def build_without_core(release: Release) -> None:
    """Build where nothing compiles, by the setting that leaves the core out."""
    build_sdist(release)
    done = pip_wheel(release, release.sdist, "--config-settings", NO_CORE, env=NO_COMPILER)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """What is built where everything is there, as installed."""
    return installed(tmp_path_factory.getbasetemp(), "release", build)


@pytest.fixture(scope="module")
def coreless(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """What is built without the core, which takes seconds, as installed."""
    return installed(tmp_path_factory.getbasetemp(), "coreless", build_without_core)


def test_source_package_holds_links_and_the_command() -> None:
    """src/kvcanon holds the command, the version and what SGLang loads; each part is a link."""
    folder = ROOT / "src/kvcanon"
    links = {path.name: str(path.readlink()) for path in folder.iterdir() if path.is_symlink()}
    assert links == {part: f"../../{part}" for part in (*PARTS, "lab")}
    others = {path.name for path in folder.iterdir()} - links.keys() - {"__pycache__"}
    assert others == OWN_FILES


def test_wheel_holds_every_source_file_under_one_name(coreless: Release) -> None:
    """The wheel holds the files behind the links, each once, all of them under kvcanon."""
    with zipfile.ZipFile(coreless.wheel) as wheel:
        assert not [
            entry.filename for entry in wheel.infolist() if stat.S_ISLNK(entry.external_attr >> 16)
        ]
        packed = {name for name in wheel.namelist() if name.endswith((".py", "py.typed"))}
        expected = sources()
        assert packed == expected.keys()
        assert not [name for name in packed if wheel.read(name) != expected[name]]
        tops = {name.split("/")[0] for name in wheel.namelist()}
    assert tops == {"kvcanon", "kvcanon-0.1.0.dist-info"}


def test_wheel_holds_the_styles_and_scripts_of_pages(coreless: Release) -> None:
    """The wheel holds the style sheets and the scripts that reports and runs are made with."""
    own = [*(ROOT / "conformance").rglob("*.css"), *(ROOT / "conformance").rglob("*.js")]
    assert len(own) > 5
    with zipfile.ZipFile(coreless.wheel) as wheel:
        packed = {
            name: wheel.read(name) for name in wheel.namelist() if name.endswith((".css", ".js"))
        }
    assert packed == {f"kvcanon/{path.relative_to(ROOT)}": path.read_bytes() for path in own}


def compiled(wheel: Path) -> list[str]:
    """Return what a wheel holds besides text: modules for one platform, and caches of Python's."""
    with zipfile.ZipFile(wheel) as opened:
        return [name for name in opened.namelist() if name.endswith((".pyc", ".so", ".a", ".o"))]


@pytest.mark.nightly
def test_wheel_holds_a_stub_of_each_core(release: Release) -> None:
    """The stubs that the build generates are in the wheel, for type checkers."""
    with zipfile.ZipFile(release.wheel) as wheel:
        stubs = {name for name in wheel.namelist() if name.endswith(".pyi")}
        assert stubs == STUBS.keys()
        assert all(line in wheel.read(name).decode() for name, line in STUBS.items())


@pytest.mark.nightly
def test_wheel_fits_this_platform(release: Release) -> None:
    """The wheel says for which Python it was built, and holds two modules that are compiled."""
    python, suffix = "cp312-abi3", ".abi3.so"
    if sys.version_info < (3, 12):
        python = "-".join(2 * [f"cp{sys.version_info.major}{sys.version_info.minor}"])
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert release.wheel.name == f"kvcanon-0.1.0-{python}-{platform}.whl"
    modules = {f"kvcanon/live/_stream{suffix}", f"kvcanon/optimized/_core{suffix}"}
    assert set(compiled(release.wheel)) == modules


def test_wheel_leaves_native_sources_out(coreless: Release) -> None:
    """The sources of the core are in the source distribution; a wheel has no use for them."""
    with zipfile.ZipFile(coreless.wheel) as wheel:
        assert not [
            name
            for name in wheel.namelist()
            if name.startswith(("kvcanon/optimized/native/", "kvcanon/live/native/"))
        ]


@pytest.mark.nightly
def test_failed_compile_is_an_error(coreless: Release, tmp_path: Path) -> None:
    """Where nothing compiles there is no wheel, and one line says what to install or to set."""
    failed = Release(tmp_path)
    failed.elsewhere.mkdir()
    done = pip_wheel(failed, coreless.sdist, env=NO_COMPILER)
    assert done.returncode == 1
    (line,) = re.findall(r"kvcanon was not built: .*", done.stdout + done.stderr)
    assert "Install a C++17 compiler" in line
    assert f"--config-settings={NO_CORE} 'kvcanon[suite]'" in line
    assert not list(tmp_path.rglob("*.whl"))


def test_wheel_without_core_is_pure(coreless: Release) -> None:
    """A wheel without the core fits every platform, and is not taken for one that has it."""
    assert coreless.wheel.name == "kvcanon-0.1.0-py3-none-any.whl"
    assert compiled(coreless.wheel) == []


def test_wheel_carries_its_license(coreless: Release) -> None:
    """The license is in the wheel, word for word."""
    with zipfile.ZipFile(coreless.wheel) as wheel:
        packed = wheel.read("kvcanon-0.1.0.dist-info/licenses/LICENSE")
    assert packed == (ROOT / "LICENSE").read_bytes()


def test_sdist_holds_the_four_folders(coreless: Release) -> None:
    """The source distribution is shaped like the checkout: five folders, and links to them."""
    with tarfile.open(coreless.sdist) as sdist:
        entries = {member.name.partition("/")[2]: member for member in sdist.getmembers()}
    for part in PARTS:
        assert entries[f"{part}/__init__.py"].isfile()
        link = entries[f"src/kvcanon/{part}"]
        assert link.issym()
        assert link.linkname == f"../../{part}"
    assert entries["optimized/native/module.cpp"].isfile()
    # What was compiled in the checkout stays there: it is no source, and may be of another day.
    assert not [name for name in entries if name.endswith(".so")]


def test_installed_package_is_the_wheel(coreless: Release) -> None:
    """The package that is found is the installed one, not the checkout by some back door."""
    for part in ("spec", "reference", "conformance"):
        found = coreless.python(f"import kvcanon.{part} as part; print(part.__file__)")
        assert Path(found.strip()).is_relative_to(coreless.environment)


@pytest.mark.parametrize("part", PARTS)
def test_installed_parts_have_no_name_of_their_own(coreless: Release, part: str) -> None:
    """`import spec` finds nothing: the distribution takes one name, and leaves the others free."""
    done = coreless.run("python", "-c", f"import {part}")
    assert done.returncode == 1
    assert f"ModuleNotFoundError: No module named '{part}'" in done.stderr


@pytest.mark.nightly
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
    assert "`pip install --force-reinstall --no-deps --no-cache-dir kvcanon`" in last
    assert "a C++17 compiler" in last


@pytest.mark.nightly
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


def test_without_the_suite_the_command_says_how_to_mend_it(coreless: Release) -> None:
    """Without the suite's packages the command names one, and the install command; exit 2."""
    purelib = coreless.python("import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    run_command = "import runpy; runpy.run_module('kvcanon', None, '__main__')"
    code = f"import sys; sys.path.append({purelib!r}); {run_command}"
    done = coreless.run("python", "-S", "-c", code)
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
    assert needed("suite") == {"hypothesis", "numpy", "pytest", "rich", "typer", "zstandard"}


def test_installed_version_is_the_distributions(coreless: Release) -> None:
    """`kvcanon.__version__` comes from the metadata, so that it is written in one place."""
    assert coreless.python("import kvcanon; print(kvcanon.__version__)").strip() == "0.1.0"


@pytest.mark.parametrize(
    "arguments", [("--help",), ("laws",), ("check", "reference", "--only", "vectors")], ids=" ".join
)
def test_installed_command_answers(coreless: Release, arguments: tuple[str, ...]) -> None:
    """The command works as installed, also without the core: it prints the laws, and judges."""
    done = coreless.run("kvcanon", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.nightly
def test_installed_suite_judges(coreless: Release) -> None:
    """Pytest finds the installed suite and its options."""
    asked = ("--pyargs", "kvcanon.conformance", "--kvcanon-cache", "reference", "-k", "TREE-1")
    done = coreless.run("python", "-c", SMALL_SUITE, *asked)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
