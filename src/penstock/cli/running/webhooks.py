"""`penstock webhooks ...`: make, look at and steer webhooks, through the management address."""

from __future__ import annotations

import argparse
import json
from datetime import datetime
from typing import Any, Final

from penstock.cli.parsing import Builder, Parser
from penstock.cli.running.client import ApiError, Client, segment
from penstock.cli.running.nouns import OUTPUT, argument, columns, json_settings, list_of, verbs_of
from penstock.cli.running.paths import count
from penstock.cli.tables import print_list, print_record

__all__ = ["COMMANDS"]

_SHOWN = "name,state,url,format,ordering,delivered,backlog,dead,last_status,last_error"
_ATTEMPTS = "at,status,result,attempt,ms,ids,answer"


def _add_webhooks(parser: Parser) -> None:
    vhost = argument("--vhost", default="/", help="the vhost (default: /)")
    name = argument("name", metavar="NAME")
    webhooks = verbs_of(parser)
    webhooks("list", list_of("webhooks/{vhost}"), vhost, columns(_SHOWN), help="list webhooks")
    webhooks("show", _show, vhost, name, OUTPUT, help="settings and state of a webhook")
    webhooks(
        "create",
        _create,
        vhost,
        name,
        argument(
            "settings",
            metavar="JSON",
            type=json_settings,
            help="settings, or @FILE: see docs/reference/webhooks.md",
        ),
        OUTPUT,
        help="make a webhook, or change one; prints its secret if one was made",
    )
    webhooks("delete", _do("DELETE", ""), vhost, name, help="end a webhook")
    webhooks("pause", _do("POST", "/pause"), vhost, name, OUTPUT, help="send nothing until it is resumed")
    webhooks(
        "resume", _do("POST", "/resume"), vhost, name, OUTPUT, help="go on, also after it was switched off"
    )
    webhooks("test", _do("POST", "/test"), vhost, name, OUTPUT, help="send a message that is in no queue")
    webhooks(
        "rotate", _do("POST", "/rotate-secret"), vhost, name, OUTPUT, help="a new secret beside the old one"
    )
    webhooks(
        "redrive",
        _redrive,
        vhost,
        name,
        argument("--max", type=count, default=1000, help="at most so many (default: %(default)s)"),
        OUTPUT,
        help="send its dead letters again",
    )
    webhooks(
        "replay",
        _replay,
        vhost,
        name,
        argument("since", metavar="FROM", help='a time, an interval such as "-1h", or pos:N'),
        argument("--to", help="where to end (default: now)"),
        OUTPUT,
        help="send again what was sent since then",
    )
    webhooks(
        "attempts",
        _attempts,
        vhost,
        name,
        argument("--from", dest="since", default="-1h", help="a time or an interval (default: %(default)s)"),
        columns(_ATTEMPTS),
        help="the delivery log",
    )


def _path(parsed: argparse.Namespace, rest: str = "") -> str:
    return f"/v1/vhosts/{segment(parsed.vhost)}/webhooks/{segment(parsed.name)}{rest}"


def _print(answer: Any, parsed: argparse.Namespace) -> None:
    if answer is not None:
        print_record(answer, parsed.output)


def _show(client: Client, parsed: argparse.Namespace) -> None:
    _print(client.get(_path(parsed)), parsed)


def _create(client: Client, parsed: argparse.Namespace) -> None:
    _print(client.request("PUT", _path(parsed), parsed.settings), parsed)


def _do(method: str, rest: str) -> Any:
    def action(client: Client, parsed: argparse.Namespace) -> None:
        _print(client.request(method, _path(parsed, rest)), parsed)

    return action


def _redrive(client: Client, parsed: argparse.Namespace) -> None:
    _print(client.request("POST", _path(parsed, "/redrive"), {"max": parsed.max}), parsed)


def _replay(client: Client, parsed: argparse.Namespace) -> None:
    body = {"from": parsed.since} | ({"to": parsed.to} if parsed.to else {})
    _print(client.request("POST", _path(parsed, "/replay"), body), parsed)


def _attempts(client: Client, parsed: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    start = parsed.since
    while True:
        read = client.get(_path(parsed, f"/attempts?max=1000&from={segment(start)}"))
        if not isinstance(read, dict):
            raise ApiError("the answer is no delivery log", 0)
        rows += [json.loads(message["value"]) for message in read["messages"]]
        if not read["messages"]:
            break
        start = str(read["next"])
    if parsed.output != "json":
        for row in rows:
            row["at"] = _time(row["at"])
    print_list(rows, parsed.columns, parsed.output)


def _time(ms: object) -> object:
    """Milliseconds since the epoch as people read them."""
    if not isinstance(ms, int):
        return ms
    return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(sep=" ", timespec="milliseconds")


COMMANDS: Final[dict[str, Builder]] = {"webhooks": _add_webhooks}
