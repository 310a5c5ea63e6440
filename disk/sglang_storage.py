"""The disk tier as a storage backend of SGLang's HiCache, for a stock server: `DiskStorage`.

Pages move between the host pool and the disk without a copy where its alignment allows it.
"""

from __future__ import annotations

import logging
from pathlib import Path

from kvcanon.disk.errors import DiskUnusable
from kvcanon.disk.figures import DiskFigures
from kvcanon.disk.identity import DiskIdentity
from kvcanon.disk.opening import segment_bytes_of_pages
from kvcanon.disk.sglang_pages import SglangPages, is_positive
from kvcanon.disk.store import DiskStore

_LOG = logging.getLogger(__name__)


class DiskStorage(SglangPages):
    """SGLang's storage interface over a `DiskStore`. No call raises, except those of an attach."""

    called = "kvcanon's disk"
    own_options = ("folder", "size_gb", "weights", "threads")
    store: DiskStore | None

    def check_own_options(self) -> None:
        """Refuse a disk without a folder or a size. Raises: DiskUnusable."""
        if not self.options.get("folder") or not is_positive(self.options.get("size_gb")):
            raise DiskUnusable(
                'kvcanon\'s disk needs a "folder" and a "size_gb" of more than 0, for each rank, '
                "in --hicache-storage-backend-extra-config"
            )

    def opened(self, identity: DiskIdentity) -> DiskStore:
        """Open the folder. Raises: DiskUnusable."""
        capacity = int(float(self.options["size_gb"]) * 1e9)
        store = DiskStore.open(
            Path(str(self.options["folder"])),
            identity,
            capacity,
            threads=int(self.options.get("threads", 4)),
            segment_bytes=segment_bytes_of_pages(capacity, self.page_bytes),
        )
        _LOG.info(
            "kvcanon's disk: %s of %.1f GB, with %d pages of %d bytes, for %s",
            store.parts.folder.path,
            capacity / 1e9,
            store.statistics().pages,
            self.page_bytes,
            dict(identity.facts),
        )
        return store

    def in_words(self) -> str:
        """What the disk holds and has done."""
        return "" if self.store is None else _in_words(self.store.statistics())


def _in_words(figures: DiskFigures) -> str:
    return (
        f"{figures.pages} pages in {figures.used_bytes / 1e9:.2f} of "
        f"{figures.capacity_bytes / 1e9:.2f} GB; since the start {figures.written_pages} written, "
        f"{figures.read_pages} read, {figures.missed_pages} missed, {figures.evicted_pages} "
        f"evicted, {figures.damaged_pages} damaged, {figures.refused_pages} refused, "
        f"{figures.failed_calls} failed calls"
    )
