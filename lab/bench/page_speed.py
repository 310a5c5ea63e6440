"""Measures a page in a headless browser: how long it takes to open, and to go to other steps.

The times are those of the page's own clock: from the begin of the navigation to the first drawn
state, and from a step's begin to the frame after it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.bench.browser import headless_browser

OPENINGS = 3
STEPS = 200
JUMPS = 20
LIMIT_MS = 120_000

READY = "document.querySelector('[data-ready]') !== null"

OPENED = """() => {
  const [mark] = performance.getEntriesByName("show-ready");
  const element = document.querySelector("[data-ready]");
  return [element.dataset.ready, mark ? mark.startTime : 0];
}"""

STEPPED = """async ([steps, jumps]) => {
  const viewer = document.querySelector("[data-ready]").viewer;
  const frame = () => new Promise((over) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = over;
    channel.port2.postMessage(0);
  }));
  const last = viewer.run.last, times = { forward: [], back: [], jump: [] };
  const timed = async (kind, step) => {
    await frame();
    const began = performance.now();
    await viewer.ask(step);
    await frame();
    times[kind].push(performance.now() - began);
  };
  const most = Math.min(steps, last);
  for (let step = 1; step <= most; step++) await timed("forward", step);
  for (let step = most - 1; step >= 0; step--) await timed("back", step);
  for (let n = 1; n <= jumps; n++) await timed("jump", Math.floor(last * ((n * 0.618034) % 1)));
  return [last, viewer.run.state.rows.size - 1, times];
}"""


@frozen
class PageSpeed:
    """What was measured; all times in milliseconds."""

    browser: str
    page_bytes: int
    steps: int
    nodes: int
    """Nodes of the tree at the end."""
    opened: tuple[float, ...]
    """Each opening, in a new window."""
    forward: tuple[float, ...]
    back: tuple[float, ...]
    jump: tuple[float, ...]
    """To steps all over the run."""


def measure_page(path: Path) -> PageSpeed:
    """Open a page and go through it. Raises: UsageError: no browser, or the page shows no run."""
    opened: list[float] = []
    with headless_browser() as browser:
        for _ in range(OPENINGS):
            page = browser.new_page()
            page.set_default_timeout(LIMIT_MS)
            page.goto(path.resolve().as_uri())
            page.wait_for_function(READY)
            ready, at = page.evaluate(OPENED)
            if ready != "yes":
                raise UsageError(f"{path} shows no run: {page.inner_text('[data-ready]')}")
            opened.append(at)
            if len(opened) < OPENINGS:
                page.close()
        last, nodes, times = page.evaluate(STEPPED, [STEPS, JUMPS])
        return PageSpeed(
            browser=f"{browser.browser_type.name} {browser.version}",
            page_bytes=path.stat().st_size,
            steps=last,
            nodes=nodes,
            opened=tuple(opened),
            **{kind: tuple(each) for kind, each in _times(times).items()},
        )


def _times(value: Any) -> dict[str, list[float]]:  # noqa: ANN401  # What the page answers.
    return {kind: [float(each) for each in value[kind]] for kind in ("forward", "back", "jump")}
