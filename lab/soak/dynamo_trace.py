"""Serves a trace, and before each request asks NVIDIA Dynamo's indexer for the overlap by tier.

The indexer follows our publisher. The run fails if for any request it differs from the cache.

Run it as `make dynamo TRACE=conversation_trace.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np
from attrs import asdict

from dynamo_indexer import RELEASE
from dynamo_overlaps import Prompted, compared
from kvcanon.conformance.replay.workloads.trace import load_trace
from kvcanon.lab.releases.environment import peers_in, usual_folder
from kvcanon.run_record import with_run
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Compare overlaps with NVIDIA Dynamo's indexer.")
    parser.add_argument("--trace", type=Path, required=True, help="a trace of the Mooncake format")
    parser.add_argument("--limit", type=int, help="serve the first requests only")
    parser.add_argument("--page-sizes", default="16,64", help="(default: 16,64)")
    parser.add_argument("--dialect", default="sglang", help="sglang or vllm (default: sglang)")
    parser.add_argument("--device-tokens", type=int, default=2_000_000)
    parser.add_argument("--host-tokens", type=int, default=8_000_000)
    parser.add_argument("--write-policy", default="write_through")
    parser.add_argument(
        "--peers",
        type=Path,
        default=Path(os.environ.get("KVCANON_PEERS") or usual_folder()),
        help="folder of the environments of `kvcanon lab peers`",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was counted")
    given = parser.parse_args()

    def tell(line: str) -> None:
        print(f"  {line}", flush=True)

    peer = peers_in(given.peers).get(RELEASE)
    if peer is None:
        parser.error(
            f"{RELEASE} has no environment in {given.peers}; run `kvcanon lab peers make {RELEASE}`"
        )
    wrong = 0
    counted: dict[int, dict[str, int]] = {}
    for page_size in map(int, given.page_sizes.split(",")):
        config = CacheConfig(
            page_size=page_size,
            device_slots=Counts(given.device_tokens // page_size),
            host_slots=Counts(given.host_tokens // page_size),
            write_policy=given.write_policy,
        )
        prompts = (
            Prompted(np.array(request.make_tokens(), dtype=np.uint32))
            for request in load_trace(given.trace, given.limit)
        )
        done = compared(peer, config, given.dialect, prompts, tell=tell)
        for each in done.differs[:5]:
            print(
                f"  request {each.request}, {each.tokens} tokens: the cache reports "
                f"{each.cache.device} on the device and {each.cache.anywhere} in all, the indexer "
                f"{each.indexer.device} and {each.indexer.anywhere}"
            )
        print(
            f"pages of {page_size}: {done.requests:,} requests, {done.pages:,} page events, "
            f"{done.device_tokens:,} tokens cached on the device and {done.host_tokens:,} more on "
            f"the host; {len(done.differs)} requests differ",
            flush=True,
        )
        wrong += len(done.differs)
        counted[page_size] = {**asdict(done), "differs": len(done.differs)}
    if given.json is not None:
        command = " ".join(["python -m kvcanon.lab.soak.dynamo_trace", *sys.argv[1:]])
        value = with_run({"dynamo": counted}, command)
        given.json.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
