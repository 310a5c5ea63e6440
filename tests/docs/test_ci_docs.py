"""docs/ci.md: the code that it shows runs. `tests/package/test_action.py` lints its workflows."""

from __future__ import annotations

import logging
import re
import sys
from types import ModuleType

import pytest

from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, Slots, make_key
from paths import DOCS


class Leaky(ReferenceCache):
    """Forgets the slots that it is given back."""

    def free(self, slots: Slots) -> None:
        """Do nothing."""


@pytest.mark.parametrize(("make", "logged"), [(ReferenceCache, False), (Leaky, True)])
def test_canary_logs_broken_laws_and_goes_on(
    make: type[ReferenceCache],
    logged: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The guarded cache of the page judges its operations, logs broken laws, and never raises."""
    (source,) = re.findall(r"```python\n(.*?)```", (DOCS / "ci.md").read_text("utf-8"), re.DOTALL)
    module = ModuleType("my_package.my_module")
    module.make_cache = make  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_package", ModuleType("my_package"))
    monkeypatch.setitem(sys.modules, "my_package.my_module", module)
    assert "rate=0.001" in source
    names: dict[str, object] = {}
    exec(source.replace("rate=0.001", "rate=1"), names)  # noqa: S102  # It is our own page.
    make_canary = names["make_canary"]
    assert callable(make_canary)
    with caplog.at_level(logging.ERROR):
        cache = make_canary(CacheConfig(device_slots=Counts(full=4)))
        cache.free(cache.allocate(Counts(full=2)))
        assert cache.match(make_key([1, 2], 1)).prefix_pages == 0
    assert cache.judged == 3
    assert bool(caplog.records) is logged
    assert all("Free(" in each.getMessage() for each in caplog.records[:1])
