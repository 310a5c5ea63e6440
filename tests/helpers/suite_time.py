"""Times `kvcanon check` and the pytest suite on the same caches: `python suite_time.py CACHE...`.

It prints the seconds of the clock and of the processor, workers included, and pytest's share.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from time import monotonic

from suite_runs import FOLDERS

CHECK = ("-m", "kvcanon", "check")
SUITE = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "kvcanon.conformance")


def seconds(folder: str, *arguments: str) -> tuple[float, float]:
    """The seconds of the clock and of the processor that a Python command takes."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), monotonic()
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, FOLDERS))}
    command = (sys.executable, *arguments)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return monotonic() - began, busy


def main() -> None:
    """Print a row for each cache."""
    with tempfile.TemporaryDirectory() as folder:
        for cache in sys.argv[1:]:
            check = seconds(folder, *CHECK, cache)
            suite = seconds(folder, *SUITE, "--kvcanon-cache", cache)
            ratios = [two / one for one, two in zip(check, suite, strict=True)]
            print(  # noqa: T201  # It is a script.
                f"{cache}: check {check[0]:.1f} s ({check[1]:.1f} s busy), "
                f"pytest {suite[0]:.1f} s ({suite[1]:.1f} s busy): "
                f"{ratios[0]:.2f} times ({ratios[1]:.2f})"
            )


if __name__ == "__main__":
    main()
