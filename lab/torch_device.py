"""The device of an engine's pools, as the option --device names it: a name of torch."""

from __future__ import annotations

from importlib import import_module

from kvcanon.conformance.errors import UsageError

CPU_DEVICE = "cpu"


def require_device(name: str) -> None:
    """Check that torch has a device of this name. Raises: UsageError, ImportError."""
    torch = import_module("torch")
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        words = str(error).splitlines()[0]
        raise UsageError(f"--device {name}: torch cannot allocate there: {words}") from error
