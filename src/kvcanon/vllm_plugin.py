"""The entry point of vLLM's plugins: makes `KvcanonConnector` known by its name.

vLLM loads this in each of its processes, so that it imports nothing before it is needed.
docs/vllm.md says how to install and select the connector.
"""

from __future__ import annotations

from contextlib import suppress

NAME = "KvcanonConnector"
MODULE = "kvcanon.optimized.vllm.connector"


def register() -> None:
    """Register the connector; a second call changes nothing."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory  # noqa: PLC0415

    # It is registered already where vLLM loads its plugins twice.
    with suppress(ValueError):
        KVConnectorFactory.register_connector(NAME, MODULE, NAME)
