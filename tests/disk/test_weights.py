"""Which weights a folder has: what changes the answer, and what does not."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from kvcanon.disk import DiskIdentity, DiskUnusable
from kvcanon.disk.weights import weights_digest

TENSORS = 5
TENSOR_BYTES = 20_000


def write_weights(folder: Path, *, changed: int | None = None) -> None:
    """Write a file of safetensors; one tensor may have other values."""
    folder.mkdir(exist_ok=True)
    header = {
        f"layer.{number}": {
            "dtype": "U8",
            "shape": [TENSOR_BYTES],
            "data_offsets": [number * TENSOR_BYTES, (number + 1) * TENSOR_BYTES],
        }
        for number in range(TENSORS)
    }
    text = json.dumps(header).encode()
    data = [bytes([number + (number == changed)]) * TENSOR_BYTES for number in range(TENSORS)]
    path = folder / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data))
    os.utime(path, (1, 1))


@pytest.mark.parametrize("changed", range(TENSORS))
def test_one_tensor_with_other_values_is_other_weights(tmp_path: Path, changed: int) -> None:
    """Also if names, shapes, size and time are the same."""
    write_weights(tmp_path)
    before = weights_digest(tmp_path)
    write_weights(tmp_path, changed=changed)
    assert weights_digest(tmp_path) != before


def test_the_folder_may_be_moved(tmp_path: Path) -> None:
    """The path is no part of what weights are known by; the time is."""
    write_weights(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    assert weights_digest(tmp_path / "one") == weights_digest(tmp_path / "two")
    os.utime(tmp_path / "two" / "model.safetensors", (2, 2))
    assert weights_digest(tmp_path / "one") != weights_digest(tmp_path / "two")


def test_a_blob_of_hugging_face_is_known_by_its_name(tmp_path: Path) -> None:
    """Its name is the hash of its content, so that a second download is the same."""
    write_weights(tmp_path / "files")
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    blob = blobs / ("ab" * 32)
    shutil.copy(tmp_path / "files" / "model.safetensors", blob)
    (snapshot / "model.safetensors").symlink_to(blob)
    before = weights_digest(snapshot)
    os.utime(blob, (5, 5))
    assert weights_digest(snapshot) == before


def test_other_kinds_of_files_are_sampled(tmp_path: Path) -> None:
    """A large change of a file without a header shows."""
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(bytes(1 << 20))
    os.utime(path, (1, 1))
    before = weights_digest(tmp_path)
    path.write_bytes(bytes(1 << 19) + b"\1" * (1 << 19))
    os.utime(path, (1, 1))
    assert weights_digest(tmp_path) != before


def test_weights_that_are_not_there_are_one_clear_line(tmp_path: Path) -> None:
    """The message says what to give instead."""
    with pytest.raises(DiskUnusable, match=r'no weights were found in .* "weights" of the extra'):
        weights_digest(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(DiskUnusable, match=r"cannot be read: model\.safetensors is no file of"):
        weights_digest(tmp_path)


def test_every_fact_and_the_place_change_the_fingerprint() -> None:
    """No two facts that are joined otherwise are the same."""
    identities = [
        DiskIdentity({"a": "1", "b": "2"}),
        DiskIdentity({"a": "1", "b": "3"}),
        DiskIdentity({"a": "1b2"}),
        DiskIdentity({"a": "1", "b": "2"}, "rank1of2"),
        DiskIdentity({"a": "1", "b": "2"}, "rank1of4"),
    ]
    assert len({each.fingerprint for each in identities}) == len(identities)
    assert identities[0].base == identities[3].base
    assert len({each.folder for each in identities}) == len(identities)
