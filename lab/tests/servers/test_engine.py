"""A real SGLang server: the small script, where the environment of servers is."""

import os
import subprocess
from pathlib import Path

import pytest

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.releases.environment import usual_folder
from kvcanon.lab.servers.server_environment import server_environment

pytestmark = pytest.mark.nightly

SECONDS = 600


def test_small_script_gives_equal_tokens_counts_and_events(tmp_path: Path) -> None:
    """Without a cache, and with each core: tokens as transformers', counts and events as Rust's."""
    folder = Path(os.environ.get("KVCANON_PEERS") or usual_folder())
    try:
        peer = server_environment(folder)
    except UsageError as reason:
        pytest.fail(str(reason))
    command = [str(peer.python), "-W", "ignore", "-m", "kvcanon.lab.servers", "--small"]
    done = subprocess.run(
        [*command, "--into", str(tmp_path)],
        env=peer.variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 servers, 0 with findings" in done.stdout
