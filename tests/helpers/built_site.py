"""The site in build/site, built by the commands of `make docs` if a file has changed since."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

from kvcanon.lab.site.freshness import is_fresh
from paths import ROOT

BUILD = ROOT / "build"
SITE = BUILD / "site"
RECIPE = re.compile(r"^docs:.*\n((?:\t.*\n)+)", re.MULTILINE)


def built_site() -> Path:
    """The folder of the site; of processes that ask at once, one builds and the others wait."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (is_fresh(ROOT, BUILD / "book") and (SITE / "index.html").is_file()):
            _build()
    return SITE


def _build() -> None:
    recipe = RECIPE.search((ROOT / "Makefile").read_text("utf-8"))
    assert recipe is not None
    environment = {**os.environ, "PYTHON": sys.executable}
    for line in recipe[1].splitlines():
        command = line.strip().replace("$(BIN)/python", '"$PYTHON"')
        done = subprocess.run(  # noqa: S602  # The Makefile's own lines.
            command, shell=True, cwd=ROOT, env=environment, timeout=400, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
