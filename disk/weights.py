"""Which weights a model folder has, told without reading all of them.

Of each file of weights its size, its time and, for safetensors, its header and a sample out of
every tensor. A file in the cache of Hugging Face is known by the name of its blob, which is the
hash of its content. So two checkpoints under one path, with equal shapes, are told apart.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from kvcanon.disk.errors import DiskUnusable

SAMPLE_BYTES = 4096
"""What is read out of the middle of each tensor."""
_SAMPLES = 64
"""How many samples are read of a file whose tensors are not known."""
_MOST_HEADER_BYTES = 256 << 20
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
_HASH = re.compile(r"[0-9a-f]{64}")


WEIGHTS_OPTION = '"weights" of the extra config'
"""Where a user of SGLang may say which weights there are."""


def weights_digest(folder: Path, option: str = WEIGHTS_OPTION) -> str:
    """A hash of the weights in a folder, in hexadecimal.

    Raises: DiskUnusable, which names the option that says which weights there are.
    """
    files = sorted({each for pattern in _WEIGHTS for each in folder.glob(pattern)})
    if not files:
        raise DiskUnusable(
            f"no weights were found in {folder}; say which they are, as a revision, in {option}"
        )
    whole = hashlib.sha256()
    try:
        for file in files:
            whole.update(f"{file.name}\0{_file_digest(file)}\0".encode())
    except (OSError, ValueError) as error:
        raise DiskUnusable(f"the weights in {folder} cannot be read: {error}") from error
    return whole.hexdigest()


def _file_digest(file: Path) -> str:
    """A hash that tells one file of weights from another. Raises: OSError; ValueError."""
    blob = file.resolve()
    if blob.parent.name == "blobs" and _HASH.fullmatch(blob.name):
        return blob.name
    facts = blob.stat()
    digest = hashlib.sha256(f"{facts.st_size} {facts.st_mtime_ns}".encode())
    with blob.open("rb") as opened:
        header, places = (
            _tensors(blob) if file.suffix == ".safetensors" else (b"", _spread(facts.st_size))
        )
        digest.update(header)
        for place in places:
            opened.seek(place)
            digest.update(opened.read(SAMPLE_BYTES))
    return digest.hexdigest()


def _tensors(file: Path) -> tuple[bytes, Iterator[int]]:
    """The header of a file of safetensors, and where the sample of each tensor begins."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if length > _MOST_HEADER_BYTES:
            raise ValueError(f"{file.name} is no file of safetensors")
        header = opened.read(length)
    tensors = json.loads(header)
    begin = 8 + length
    bounds = sorted(
        each["data_offsets"] for name, each in tensors.items() if name != "__metadata__"
    )
    places = (begin + max(first, (first + last - SAMPLE_BYTES) // 2) for first, last in bounds)
    return header, places


def _spread(size: int) -> Iterator[int]:
    """Places spread evenly over a file."""
    return (size * number // _SAMPLES for number in range(_SAMPLES))
