"""What `make venv` leaves: a checkout that steps back where PYTHONPATH names another."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.specifiers import SpecifierSet

from paths import ROOT


def test_pinned_packages_install_on_the_oldest_python() -> None:
    """`make venv` works with 3.11.0, as with the 3.11.2 of Debian 12: no pin needs a later one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    oldest = re.sub(r"^>=", "", project["requires-python"]) + ".0"
    too_new, seen = {}, 0
    for name in re.findall(r"(?m)^([\w.-]+)==", (ROOT / "constraints.txt").read_text("utf-8")):
        try:
            needs = distribution(name).metadata["Requires-Python"]
        except PackageNotFoundError:
            continue  # It is of an extra that is not installed here.
        seen += 1
        if needs and oldest not in SpecifierSet(needs):
            too_new[name] = needs
    assert seen > 50
    assert too_new == {}


def test_another_checkout_is_imported_where_pythonpath_names_it(tmp_path: Path) -> None:
    """The installed checkout does not hide it."""
    (tmp_path / "kvcanon").mkdir()
    (tmp_path / "kvcanon" / "__init__.py").write_text("NAME = 'the other one'\n", "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", "import kvcanon; print(kvcanon.NAME)"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "the other one\n", done.stderr
