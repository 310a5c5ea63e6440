"""Which device block holds the bytes of which page, also after vLLM has forgotten it.

vLLM forgets what a block holds when it allocates it. The bytes are there until the step that writes
into it, and can be copied to the host before.
"""

from __future__ import annotations

from attrs import Factory, define

from kvcanon.optimized.vllm.engine_calls import VllmBlockPool
from kvcanon.optimized.vllm.pages import Page, PageKey


@define(eq=False)
class DevicePages:
    """The pages whose bytes are on the device."""

    pool: VllmBlockPool | None = None
    _pages: dict[int, Page] = Factory(dict)
    _blocks: dict[PageKey, int] = Factory(dict)
    """Of each page a block; several may hold the same."""

    def __len__(self) -> int:
        return len(self._pages)

    def learn(self, block: int, page: Page) -> None:
        """Take note that a block holds a page, whose bytes are all there."""
        former = self._pages.get(block)
        if former is not None:
            self._forget_block(former.key, block)
        self._pages[block] = page
        self._blocks[page.key] = block

    def page_of(self, block: int) -> Page | None:
        """The page that a block holds."""
        return self._pages.get(block)

    def block_of(self, key: PageKey) -> int | None:
        """A block that holds a page."""
        return self._blocks.get(key)

    def forget(self, block: int) -> Page | None:
        """Take note that a block is about to be overwritten. Returns: the page that it held."""
        page = self._pages.pop(block, None)
        if page is not None:
            self._forget_block(page.key, block)
        return page

    def clear(self) -> None:
        """Forget everything."""
        self._pages.clear()
        self._blocks.clear()

    def has_hash(self, block: int, key: PageKey) -> bool:
        """Whether vLLM finds a page in a block."""
        return self.pool is not None and self.pool.blocks[block].block_hash == key

    def _forget_block(self, key: PageKey, block: int) -> None:
        if self._blocks.get(key) == block:
            del self._blocks[key]
