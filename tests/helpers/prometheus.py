"""A Prometheus on loopback that scrapes one address, with rules of ours."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from attrs import frozen

_CONFIG = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: watch
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


@frozen
class Prometheus:
    """A server that runs."""

    url: str

    def get(self, path: str, **parameters: object) -> Any:  # noqa: ANN401  # JSON
        """What the server answers. Raises: HTTPError, if it refuses a query."""
        asked = urllib.parse.urlencode(parameters)
        with _opened(f"{self.url}/api/v1/{path}?{asked}") as answer:
            return json.load(answer)["data"]

    def query(self, expression: str, at: float) -> list[dict[str, str]]:
        """The labels of what an expression gives at a time."""
        return [each["metric"] for each in self.get("query", query=expression, time=at)["result"]]

    def is_ready(self) -> bool:
        """Whether it answers yet."""
        try:
            with _opened(f"{self.url}/-/ready") as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _opened(url: str) -> HTTPResponse:
    opened: HTTPResponse = urllib.request.urlopen(url, timeout=30)  # noqa: S310  # It is of loopback.
    return opened


@contextmanager
def prometheus_of(folder: Path, scraped_port: int, port: int, rules: Path) -> Iterator[Prometheus]:
    """Run a server; the caller waits until it is ready."""
    config = folder / "prometheus.yml"
    config.write_text(_CONFIG.format(rules=rules, port=scraped_port), encoding="utf-8")
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [  # noqa: S607  # Where it is depends on the machine.
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        ) as running,
    ):
        try:
            yield Prometheus(f"http://127.0.0.1:{port}")
        finally:
            running.terminate()
            running.wait()
