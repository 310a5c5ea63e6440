"""Runs `pytest --pyargs kvcanon.conformance` in a process of its own, and reads its outcomes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

from paths import DOCS, HELPERS, TESTS

FOLDERS = (HELPERS, TESTS, DOCS / "examples" / "adapters")
"""Where caches are found by name."""


def run(
    folder: Path, *arguments: str, effort: str = "small_effort"
) -> subprocess.CompletedProcess[str]:
    """Run the suite in a folder, without pytest's configuration of kvcanon."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", effort, "--pyargs")
    return subprocess.run(
        [*command, "kvcanon.conformance", *arguments],
        cwd=folder,
        env=env | {"PYTHONPATH": os.pathsep.join(map(str, FOLDERS))},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def outcomes(report: Path) -> dict[str, str]:
    """The outcome of each test of a JUnit report, with its message: empty if it passed."""
    found = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314  # It is pytest's own.
        said = [*case.iter("failure"), *case.iter("error"), *case.iter("skipped")]
        found[case.attrib["name"]] = "".join(
            f"{each.tag} {each.get('type')}: {each.get('message')} {each.text}" for each in said
        )
    return found
