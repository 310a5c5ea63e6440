"""A sound cache whose module takes a while to import, and notes when that is done."""

from __future__ import annotations

import os
import time
from pathlib import Path

from kvcanon.reference import ReferenceCache

SECONDS, NOTES = "SLOW_TO_LOAD_SECONDS", "SLOW_TO_LOAD_NOTES"
"""Variables: how long the import takes, and the folder with a file for each process."""

time.sleep(float(os.environ[SECONDS]))
Path(os.environ[NOTES], str(os.getpid())).write_text(str(time.monotonic()), encoding="utf-8")

make = ReferenceCache
