"""Lets a long run be played in portions: what one portion played, the next one reads.

A transcript is good for the code that was played and for nothing else, so the folder keeps a digest
of it beside the seed and the size of the script.
"""

from __future__ import annotations

import json
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from time import monotonic
from typing import TypeVar

from attrs import asdict, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.wire import from_json
from kvcanon.lab.servers.script import EngineScript
from kvcanon.lab.servers.script_rounds import ScriptSize
from kvcanon.lab.servers.transcript import Transcript

MARK = "run.json"
"""The file that says what the transcripts of a folder are of."""
PLAYED = ("optimized", "spec", "lab/servers", "conformance/engines/sglang")
"""The parts of kvcanon that a server runs, or that draw and play the script."""

Kept = TypeVar("Kept", EngineScript, Transcript)


class PortionOverError(Exception):
    """The time of this portion is over, and a server is left to play to."""


@frozen
class KeptRuns:
    """The scripts and transcripts that earlier portions left in a folder."""

    folder: Path
    ends: float
    """When this portion begins no further server, by the monotonic clock."""

    def script(self, name: str) -> EngineScript | None:
        """A script that was drawn; None if none was."""
        return self._read(EngineScript, name)

    def transcript(self, name: str) -> Transcript | None:
        """What a server answered; None if it is left to play to."""
        return self._read(Transcript, name)

    def _read(self, kind: type[Kept], name: str) -> Kept | None:
        found = self.folder / f"{name}.json"
        return from_json(kind, json.loads(found.read_text("utf-8"))) if found.is_file() else None

    def require_time(self) -> None:
        """Raise PortionOverError where no further server may begin."""
        if monotonic() > self.ends:
            raise PortionOverError


def kept_runs(folder: Path, minutes: float, seed: int, size: ScriptSize) -> KeptRuns:
    """What a folder keeps. Raises: UsageError, if that is of another run."""
    wanted = {"code": _digest(), "seed": seed, "size": asdict(size)}
    mark = folder / MARK
    if not mark.is_file():
        if any(folder.glob("*.json")):
            raise UsageError(f"{folder} has files of a run without --portion; name an empty folder")
        mark.write_text(json.dumps(wanted), encoding="utf-8")
    elif json.loads(mark.read_text(encoding="utf-8")) != wanted:
        raise UsageError(
            f"{folder} has the transcripts of other code, of another seed or of another script; "
            "name an empty folder"
        )
    return KeptRuns(folder, monotonic() + 60 * minutes)


def _digest() -> str:
    """A digest of the code that is played."""
    digest = sha256()
    for part in PLAYED:
        root = Path(str(files("kvcanon"))) / part
        for path in sorted(root.rglob("*")):
            if path.suffix in {".py", ".so", ".txt"}:
                digest.update(f"{part}/{path.relative_to(root)}\n".encode())
                digest.update(sha256(path.read_bytes()).digest())
    return digest.hexdigest()
