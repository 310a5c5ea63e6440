"""What `make venv` leaves: a checkout that steps back where PYTHONPATH names another."""

import os
import subprocess
import sys
from pathlib import Path


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
