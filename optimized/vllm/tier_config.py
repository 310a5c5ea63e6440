"""What `kv_connector_extra_config` says, and the sizes of a tier that follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from kvcanon.optimized.vllm.tier_shape import PageGroup, Policy

DEFAULT_HOST_GIB = 8.0
GIB = 1 << 30


@frozen
class TierConfig:
    """The options of the tier."""

    host_gib: float = DEFAULT_HOST_GIB
    """Memory of the host for all ranks of an engine together."""
    policy: Policy = Policy.WRITE_BACK


@frozen
class EngineGroup:
    """A group of layers, as vLLM has it."""

    layers: tuple[str, ...]
    page_bytes: int
    """Bytes of a block of all its layers, on one rank."""
    pages: PageGroup


def read_config(given: Mapping[str, object]) -> TierConfig:
    """Read the options. Raises: ValueError, in a sentence that names the option."""
    known = {"host_gib", "policy"}
    unknown = sorted(set(given) - known)
    if unknown:
        raise ValueError(
            f"kv_connector_extra_config has {', '.join(unknown)}, which kvcanon does not know; it "
            f"takes {' and '.join(sorted(known))}"
        )
    host_gib = given.get("host_gib", DEFAULT_HOST_GIB)
    if isinstance(host_gib, bool) or not isinstance(host_gib, int | float) or host_gib <= 0:
        raise ValueError(
            f"host_gib in kv_connector_extra_config is {host_gib!r}; give a size in GiB"
        )
    policy = given.get("policy", Policy.WRITE_BACK.value)
    names = [each.value for each in Policy]
    if policy not in names:
        raise ValueError(
            f"policy in kv_connector_extra_config is {policy!r}; give one of {', '.join(names)}"
        )
    return TierConfig(float(host_gib), Policy(policy))


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
