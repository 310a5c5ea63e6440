"""The soak of a server, without a server: what it makes of memory and of metrics."""

from __future__ import annotations

from kvcanon.lab.servers.soaked import MemoryReading, growth, kvcanon_metrics

PAGE = """
# HELP kvcanon_matches_total Matched prompts.
kvcanon_matches_total{tp_rank="0"} 3.0
kvcanon_hit_tokens_total{medium="GPU",tp_rank="0"} 16.0
kvcanon_hit_tokens_total{medium="CPU_PINNED",tp_rank="0"} 4.0
sglang:prompt_tokens_total{model_name="m"} 40.0
"""


def test_growth_is_that_of_the_last_tenth_above_the_first() -> None:
    """What comes and goes in between is none, nor is what a server takes at its start."""
    sizes = {0: 10, 9: 30, 50: 90, 95: 33}
    readings = [MemoryReading(at, size) for at, size in sizes.items()]
    assert growth(readings, 100) == 3
    assert growth(readings[:2], 100) == 0


def test_metrics_of_kvcanon_are_summed_over_labels() -> None:
    """SGLang's own are left out."""
    assert kvcanon_metrics(PAGE) == {
        "kvcanon_matches_total": 3.0,
        "kvcanon_hit_tokens_total": 20.0,
    }
