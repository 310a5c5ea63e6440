"""The pictures of docs/figures that show a cache at work: states of the plain cache, drawn.

Each is drawn from a state that the plain cache is really in after the calls of its scene.
"""

from __future__ import annotations

import re
from pathlib import Path

from kvcanon.conformance.protocol.adapter import CopyControl, make_subject
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.lab.site.badges import badges
from kvcanon.lab.site.map_picture import draw_map
from kvcanon.lab.site.tree_picture import draw_state
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import Receipt
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import Counts, Key, WritePolicy, make_key

STYLES = Path(__file__).with_name("book.css")
PREFIX = "cache_"
PAGE_SIZE = 2
FIRST = (1, 2, 3, 4, 5, 6, 7, 8)
SECOND = (1, 2, 3, 4, 9, 10)


def write_figures(checkout: Path) -> None:
    """Write every picture and badge into docs/figures."""
    for name, text in {**figures(), **badges(checkout)}.items():
        (checkout / "docs" / "figures" / f"{name}.svg").write_text(text, "utf-8")


def figures() -> dict[str, str]:
    """Every picture as the text of its file, by name; `trees` is the map of the checkout."""
    styles = picture_styles()
    drawn = {}
    for name, (title, state) in {**_plain_scenes(), **_window_scenes(), **_tier_scenes()}.items():
        picture = draw_state(state, title, styles=styles)
        drawn[f"{PREFIX}{name}"] = f"{picture}\n"
    drawn["trees"] = f"{draw_map(styles)}\n"
    return drawn


def picture_styles() -> str:
    """The styles of a picture that stands alone, light and dark."""
    styles = STYLES.read_text("utf-8")
    return f"{_short(styles)} {_dark(styles)}"


def _plain_scenes() -> dict[str, tuple[str, Snapshot]]:
    scenes = dict[str, tuple[str, Snapshot]]()
    cache, _ = _cache(CacheConfig(page_size=PAGE_SIZE, device_slots=Counts(full=8)))
    _insert(cache, FIRST)
    scenes["page"] = ("A prompt of eight tokens in four pages", cache.snapshot())
    _insert(cache, SECOND)
    scenes["split"] = ("A second prompt has cut the node of the first", cache.snapshot())
    receipt = cache.lock(_key(SECOND))
    scenes["lock"] = ("A request has locked the second prompt", cache.snapshot())
    cache.evict(Counts(full=2))
    scenes["evicted"] = ("An eviction has freed the leaf that nobody holds", cache.snapshot())
    cache.unlock(receipt)
    return scenes


def _window_scenes() -> dict[str, tuple[str, Snapshot]]:
    scenes = dict[str, tuple[str, Snapshot]]()
    config = CacheConfig(page_size=PAGE_SIZE, window_tokens=4, device_slots=Counts(full=8, swa=8))
    cache, _ = _cache(config)
    _insert(cache, FIRST)
    scenes["window"] = ("A prompt with full data and window data", cache.snapshot())
    cache.match(_key(FIRST))
    cache.evict(Counts(swa=2))
    scenes["tombstone"] = ("Window data has left pages that keep their full data", cache.snapshot())
    return scenes


def _tier_scenes() -> dict[str, tuple[str, Snapshot]]:
    scenes = dict[str, tuple[str, Snapshot]]()
    config = CacheConfig(
        page_size=PAGE_SIZE,
        device_slots=Counts(full=4),
        host_slots=Counts(full=8),
        write_policy=WritePolicy.WRITE_THROUGH,
    )
    cache, copies = _cache(config)
    _insert(cache, FIRST[:4])
    scenes["copying"] = ("A copy to the host is in flight", cache.snapshot())
    _settle(cache, copies)
    scenes["copied"] = ("The copy has arrived: the data is on both media", cache.snapshot())
    cache.evict(Counts(full=2))
    scenes["demoted"] = ("The data has left the device, and stays on the host", cache.snapshot())
    cache.load_back(_key(FIRST[:4]))
    scenes["loading"] = ("The data is being loaded back", cache.snapshot())
    return scenes


def _cache(config: CacheConfig) -> tuple[Cache, CopyControl]:
    subject = make_subject(REFERENCE, config)
    assert subject.copies is not None  # noqa: S101  # The plain cache takes an engine.
    return subject.cache, subject.copies


def _insert(cache: Cache, tokens: tuple[int, ...]) -> None:
    """Serve a prompt: match, lock, allocate, insert, unlock."""
    key = _key(tokens)
    found = cache.match(key).device_pages
    receipt: Receipt = cache.lock(key.prefix(found))
    missing = len(key) - found
    counts = Counts(full=missing, swa=missing if cache.config.window_tokens else 0)
    cache.insert(key, found, cache.allocate(counts))
    cache.unlock(receipt)


def _settle(cache: Cache, copies: CopyControl) -> None:
    for transfer_id in tuple(copies.open_transfer_ids):
        copies.acknowledge(transfer_id)
    cache.poll()


def _key(tokens: tuple[int, ...]) -> Key:
    return make_key(tokens, PAGE_SIZE)


def _dark(styles: str) -> str:
    """The rules that set the colours of dark pages, as a browser that prefers them takes them."""
    found = re.search(r"\.kv \{ (?P<rules>[^}]*) \} /\* dark \*/", styles)
    assert found is not None  # noqa: S101  # book.css has this rule.
    return f"@media (prefers-color-scheme: dark) {{ .kv {{ {found['rules']} }} }}"


def _short(styles: str) -> str:
    """Styles for a picture alone: without comments, and without the rules of pages."""
    picture = styles.partition("/* pages */")[0]
    picture = re.sub(r"^[^\n]*\.kv \{[^}]*\} /\* dark \*/$", "", picture, flags=re.MULTILINE)
    return re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", picture, flags=re.DOTALL)).strip()
