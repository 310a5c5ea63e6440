"""`kvcanon probe`: judges a running engine over its HTTP interface."""

from __future__ import annotations

from kvcanon.conformance.cli import probe_options as given
from kvcanon.conformance.cli.files import require_files
from kvcanon.conformance.cli.live_options import IgnoreOption, ignored_laws, require_live
from kvcanon.conformance.cli.probe_run import ProbeOptions, named_rounds, run_probe
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.probe.closeness import USUAL_MARGIN
from kvcanon.conformance.probe.discovery import ApiName


def probe_command(
    url: given.Url,
    *,
    api: given.Api = ApiName.AUTO,
    model: given.Model = "",
    api_key: given.ApiKey = "",
    events: given.Events = None,
    replay: given.Replay = None,
    ignore: IgnoreOption = None,
    seed: given.Seed = 0,
    seconds: given.Seconds = 55.0,
    requests: given.Requests = 1000,
    only: given.Only = "",
    flush: given.Flush = False,
    window: given.Window = None,
    page: given.PageTokens = None,
    pool_tokens: given.PoolTokens = None,
    host_tier: given.HostTier = None,
    margin: given.Margin = USUAL_MARGIN,
    vocabulary: given.Vocabulary = 256,
    timeout: given.Timeout = 60.0,
    script: given.ScriptFile = None,
    record: given.RecordFile = None,
    log: given.LogFile = None,
    as_json: given.AsJson = False,
) -> int:
    """Judge a running engine: its tokens, its cached tokens, its namespaces and its KV events.

    Prompts go out under fresh salts, so that what others have cached is never used. A pool that is
    quick to fill is filled, which evicts it; --only can leave that out. Ends with 0 if nothing is
    wrong, with 1 if a law is broken or the server ends, and with 2 if it cannot be probed.
    """
    require_files({"--script": script, "--record": record, "--log": log})
    for name, value in (("--replay", replay), ("--record", record), ("--ignore", ignore)):
        if value and events is None:
            raise UsageError(f"{name} is about KV events; give their address by --events")
    if events is not None:
        require_live()
    options = ProbeOptions(
        url=url,
        api=api,
        model=model,
        api_key=api_key,
        events=events,
        replay=replay,
        ignored=ignored_laws(ignore),
        seed=seed,
        seconds=seconds,
        requests=requests,
        only=named_rounds(only),
        flush=flush,
        window=window,
        page=page,
        pool_tokens=pool_tokens,
        host_tier=host_tier,
        margin=margin,
        vocabulary=vocabulary,
        timeout=timeout,
        script=script,
        record=record,
        log=log,
        as_json=as_json,
    )
    return run_probe(options)
