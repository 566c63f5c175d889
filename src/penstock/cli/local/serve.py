"""`penstock serve`: the gateway itself."""

from __future__ import annotations

import argparse
import gc
import logging
from typing import Final

from penstock.cli.parsing import Builder, Parser
from penstock.cli.sources import add_sources, loaded
from penstock.collector import uncollected

__all__ = ["COMMANDS"]


def _add_serve(serve: Parser) -> None:
    serve.description = (
        "Run the gateway. When it serves, one line 'ready amqp=HOST:PORT mqtt=HOST:PORT data=DIR' goes to "
        "standard output; log lines go to standard error. SIGTERM or SIGINT stops it cleanly."
    )
    serve.epilog = (
        "`penstock config show` lists all options; later sources overrule earlier ones: "
        "file, environment PENSTOCK__SECTION__KEY, --set, --data and --log-level."
    )
    add_sources(serve)
    serve.add_argument(
        "--salvage", action="store_true", help="start on a damaged log, without what is lost (log.salvage)"
    )
    serve.set_defaults(run=_serve)


def _serve(parsed: argparse.Namespace) -> int:
    with uncollected():
        found = loaded(parsed)
    config = found.config
    from penstock import logs
    from penstock.gateway import default_listeners

    logs.configure(config.server.log_level, config.server.log_format)
    if config.telemetry.endpoint:
        from penstock.telemetry.packages import check

        check(found)
    unavailable = default_listeners.unavailable(found)
    config = default_listeners.without(config, unavailable)
    if config.log.fsync == "never":
        logging.getLogger("penstock.server").warning(
            "log.fsync is never: confirmed messages are lost when the power fails"
        )
    if config.log.engine == "kafka":
        from penstock.cluster.supervisor import is_supervised, supervise_node

        if not is_supervised():  # it needs none of the gateway itself
            return supervise_node(config)
    with uncollected():
        from penstock.gateway.server import serve

        gc.freeze()  # modules and classes stay
    return serve(config, lambda: default_listeners.without(loaded(parsed).config, unavailable))


COMMANDS: Final[dict[str, Builder]] = {"serve": _add_serve}
