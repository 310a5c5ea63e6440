"""Plants the fault that a vLLM server is told to have. vLLM calls `register` in every process."""

from __future__ import annotations

import os

from kvcanon.lab.servers.server_setup import FAULT
from kvcanon.lab.servers.vllm_faults import FAULTS


def register() -> None:
    """What vLLM calls. Raises: KeyError, for an unknown fault."""
    name = os.environ.get(FAULT)
    if name:
        FAULTS[name]()
