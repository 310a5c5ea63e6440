"""What `kv_connector_extra_config` says, and the sizes of a tier that follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from kvcanon.optimized.vllm.tier_shape import PageGroup, Policy

DEFAULT_HOST_GIB = 8.0
GIB = 1 << 30
OPTIONS = "kv_connector_extra_config"


@frozen
class TierConfig:
    """The options of the tier."""

    host_gib: float = DEFAULT_HOST_GIB
    """Memory of the host for all ranks of an engine together."""
    policy: Policy = Policy.WRITE_BACK
    disk_folder: str = ""
    """Where pages are kept over a restart; empty for no disk."""
    disk_gib: float = 0.0
    """Room on the disk for all ranks of an engine together."""
    disk_weights: str = ""
    """Which weights the model has, where its files do not say so."""

    def disk_bytes(self, ranks: int) -> int:
        """Room on the disk for one rank."""
        return int(self.disk_gib * GIB) // ranks


@frozen
class EngineGroup:
    """A group of layers, as vLLM has it."""

    layers: tuple[str, ...]
    page_bytes: int
    """Bytes of a block of all its layers, on one rank."""
    pages: PageGroup


def read_config(given: Mapping[str, object]) -> TierConfig:
    """Read the options. Raises: ValueError, in a sentence that names the option."""
    known = {"host_gib", "policy", "disk_folder", "disk_gib", "disk_weights"}
    unknown = sorted(set(given) - known)
    if unknown:
        raise ValueError(
            f"{OPTIONS} has {', '.join(unknown)}, which kvcanon does not know; it takes "
            f"{', '.join(sorted(known))}"
        )
    host_gib = _gib(given, "host_gib", DEFAULT_HOST_GIB)
    policy = given.get("policy", Policy.WRITE_BACK.value)
    names = [each.value for each in Policy]
    if policy not in names:
        raise ValueError(f"policy in {OPTIONS} is {policy!r}; give one of {', '.join(names)}")
    folder, weights = _text(given, "disk_folder"), _text(given, "disk_weights")
    if not folder:
        without = [name for name in ("disk_gib", "disk_weights") if name in given]
        if without:
            raise ValueError(f"{OPTIONS} has {without[0]} and no disk_folder; give both")
        return TierConfig(host_gib, Policy(policy))
    if "disk_gib" not in given:
        raise ValueError(f"{OPTIONS} has disk_folder and no disk_gib; give its room in GiB")
    disk_gib = _gib(given, "disk_gib", 0.0)
    return TierConfig(host_gib, Policy(policy), folder, disk_gib, weights)


def _gib(given: Mapping[str, object], name: str, usual: float) -> float:
    """A size. Raises: ValueError."""
    size = given.get(name, usual)
    if isinstance(size, bool) or not isinstance(size, int | float) or not 0 < size < float("inf"):
        raise ValueError(f"{name} in {OPTIONS} is {size!r}; give a size in GiB")
    return float(size)


def _text(given: Mapping[str, object], name: str) -> str:
    """A text that says something; empty if it is not given. Raises: ValueError."""
    text = given.get(name)
    if name in given and not (isinstance(text, str) and text.strip()):
        raise ValueError(f"{name} in {OPTIONS} is {text!r}; give a text")
    return str(text or "")


def host_rows(config: TierConfig, groups: Sequence[EngineGroup], ranks: int) -> int:
    """How many pages fit into the host memory of a rank. Raises: ValueError: not one does."""
    row_bytes = max(group.page_bytes for group in groups)
    rows = int(config.host_gib * GIB) // (ranks * row_bytes)
    if rows < 1:
        raise ValueError(
            f"host_gib in kv_connector_extra_config is {config.host_gib}, which has no room for a "
            f"block of {ranks} x {row_bytes:,} bytes; give more"
        )
    return rows
