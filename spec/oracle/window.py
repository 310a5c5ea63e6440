"""The sliding window: which data the end of a prefix can see.

Window data is kept in whole pages. So a window that is smaller than a page is one page: a lock pins
the last page, a prefix is usable if its last page has window data, and a use refreshes that page
and one more, the cushion.

The end of a prefix never sees data before its window again. A cache that makes such data recent
evicts data that requests can still reach instead (sgl#26615).
"""

from __future__ import annotations

from kvcanon.spec.oracle.pages import pages_covering


def window_nodes(lengths: tuple[int, ...], window_tokens: int, page_size: int) -> int:
    """How many nodes, from the end of a prefix upwards, a use makes recent in the window's order.

    A node is touched while the nodes below it add up to less than the window and one page. That
    page is the cushion for the next, partly filled page. Lengths are in tokens, lowest node first.

    Source: https://github.com/sgl-project/sglang/pull/26615

    pre: len(lengths) <= 6
    pre: 1 <= window_tokens <= 64 and 1 <= page_size <= 16
    pre: all(1 <= length <= 64 for length in lengths)
    post: 0 <= __return__ <= len(lengths)
    post: __return__ == 0 or sum(lengths[:__return__ - 1]) < window_tokens + page_size
    post: __return__ == len(lengths) or sum(lengths[:__return__]) >= window_tokens + page_size
    """
    below_tokens = 0
    for count, length in enumerate(lengths):
        if below_tokens >= window_tokens + page_size:
            return count
        below_tokens += length
    return len(lengths)


def in_window(start: int, window_from: int) -> bool:
    """Whether a node that begins at page `start` is in a window that begins at `window_from`.

    A node inside of which the window begins is cut there first, so a node is in or out as a whole.

    pre: 0 <= start <= 1 << 20 and 0 <= window_from <= 1 << 20
    post: __return__ == (max(start, window_from) == start)
    """
    return start >= window_from


def window_start(end_pages: int, window_tokens: int, page_size: int) -> int:
    """The first page of the window that ends at `end_pages`: where a lock begins to pin.

    pre: 0 <= end_pages <= 1 << 20
    pre: 1 <= window_tokens <= 1 << 20 and 1 <= page_size <= 1 << 10
    post: 0 <= __return__ <= end_pages
    post: __return__ == 0 or (end_pages - __return__) * page_size >= window_tokens
    post: (end_pages - __return__ - 1) * page_size < window_tokens
    """
    return max(0, end_pages - pages_covering(window_tokens, page_size))
