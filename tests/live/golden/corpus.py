"""Writes the golden batches into a folder, as inputs of `make fuzz-stream`."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """For each dialect, and each way to judge: the batch twice."""
    folder = Path(sys.argv[1])
    for path in Path(__file__).parent.glob("*.hex"):
        batch = bytes.fromhex(path.read_text(encoding="utf-8"))
        framed = len(batch).to_bytes(2, "big") + batch
        for options in range(128):
            (folder / f"{path.stem}-{options}").write_bytes(bytes([options]) + 2 * framed)


if __name__ == "__main__":
    main()
