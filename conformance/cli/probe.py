"""`kvcanon probe`: judges a running engine over its HTTP interface."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvcanon.conformance.cli.files import require_files
from kvcanon.conformance.cli.live_options import IgnoreOption, ignored_laws, require_live
from kvcanon.conformance.cli.probe_run import ProbeOptions, run_probe
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.probe.closeness import USUAL_MARGIN
from kvcanon.conformance.probe.discovery import ApiName


def probe_command(
    url: Annotated[str, typer.Argument(help="The server, as http://127.0.0.1:30000.")],
    *,
    api: Annotated[
        ApiName, typer.Option(help="The server's interface; auto asks the server.")
    ] = ApiName.AUTO,
    model: Annotated[str, typer.Option(help="The model to ask, if a server has several.")] = "",
    api_key: Annotated[
        str, typer.Option(envvar="KVCANON_API_KEY", help="The key that the server asks for.")
    ] = "",
    events: Annotated[
        str | None, typer.Option(help="Its KV events, as tcp://127.0.0.1:5557, beside its answers.")
    ] = None,
    replay: Annotated[str | None, typer.Option(help="The replay endpoint of the events.")] = None,
    ignore: IgnoreOption = None,
    seed: Annotated[int, typer.Option(help="The seed of all prompts.")] = 0,
    seconds: Annotated[
        float, typer.Option(min=1, help="No request begins after so many seconds.")
    ] = 55.0,
    requests: Annotated[int, typer.Option(min=1, help="The most requests.")] = 1000,
    flush: Annotated[
        bool,
        typer.Option("--flush", help="Empty the cache where a server takes no salts: never when "
                     "others use it."),
    ] = False,
    window: Annotated[
        int | None,
        typer.Option(min=0, help="Tokens of the sliding window; 0 if no layer has one or a state."),
    ] = None,
    page: Annotated[int | None, typer.Option(min=1, help="Tokens of a page or block.")] = None,
    pool_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens that fit into the cache on the device.")
    ] = None,
    host_tier: Annotated[
        bool | None,
        typer.Option("--host-tier/--no-host-tier", help="Whether prompts are also kept elsewhere."),
    ] = None,
    margin: Annotated[
        float, typer.Option(min=0, help="The most that rounding changes a log-probability.")
    ] = USUAL_MARGIN,
    vocabulary: Annotated[
        int, typer.Option(min=16, help="Prompts are drawn of token ids below this.")
    ] = 256,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for one answer.")] = 60.0,
    script: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the requests that show the finding.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the events, for `kvcanon audit`.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write prompts and cached tokens, for "
                                  "`kvcanon audit --served`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Judge a running engine: its tokens, its cached tokens, its namespaces and its KV events.

    Sends prompts under fresh salts, so that what others have cached is neither used nor emptied;
    but it fills the cache if that is quick. Ends with 0 if nothing is wrong, with 1 if a law is
    broken, and with 2 if the server cannot be probed.
    """
    require_files({"--script": script, "--record": record, "--log": log})
    for name, value in (("--replay", replay), ("--record", record), ("--ignore", ignore)):
        if value and events is None:
            raise UsageError(f"{name} is about KV events; give their address by --events")
    if events is not None:
        require_live()
    return run_probe(
        ProbeOptions(
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
    )
