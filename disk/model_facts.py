"""What a model is, as an engine has loaded it: its configuration and its weights, not its path."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from kvcanon.disk.errors import DiskUnusable
from kvcanon.disk.weights import WEIGHTS_OPTION, weights_digest

_OF_PATHS = ("_name_or_path", "name_or_path", "transformers_version", "_commit_hash")
"""What of a configuration says where a model lies, and by what it was written."""
_NO_FILES = ("dummy", "remote", "remote_instance")
"""Ways to load weights that are in no folder."""


def config_digest(config: Mapping[str, object]) -> str:
    """A hash of a model's configuration, without paths, in hexadecimal."""
    plain = _without_paths(config)
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()


def weights_of_model(
    model: str, revision: str | None, load_format: str, option: str = WEIGHTS_OPTION
) -> str:
    """Which weights an engine has loaded, as `weights_digest` tells.

    `model` is a folder, or a name in the cache of Hugging Face. Raises: DiskUnusable, which names
    the option that says which weights there are.
    """
    if load_format.lower() in _NO_FILES:
        raise DiskUnusable(
            f"weights of --load-format {load_format} are in no folder; say which they are, as a "
            f"revision, in {option}"
        )
    folder = Path(model)
    if not folder.is_dir():
        folder = _snapshot(model, revision, option)
    return weights_digest(folder, option)


def _snapshot(model: str, revision: str | None, option: str) -> Path:
    """Where the cache of Hugging Face has a model. Raises: DiskUnusable."""
    try:
        hub = import_module("huggingface_hub")
        return Path(hub.snapshot_download(model, revision=revision, local_files_only=True))
    except Exception as error:
        raise DiskUnusable(
            f"the files of {model} were not found; say which weights they are, as a revision, in "
            f"{option}"
        ) from error


def _without_paths(value: object) -> object:
    if isinstance(value, Mapping):
        return {
            str(name): _without_paths(each) for name, each in value.items() if name not in _OF_PATHS
        }
    if isinstance(value, list | tuple):
        return [_without_paths(each) for each in value]
    return value
