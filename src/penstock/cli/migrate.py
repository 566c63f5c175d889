"""`penstock migrate ...`: move from another broker. Without --apply nothing changes: it says what would."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.client import ApiError, Client
from penstock.cli.nouns import add_target
from penstock.cli.parsing import Builder, Parser
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.migrate.report import Report

__all__ = ["COMMANDS"]

_TIMEOUT_S: Final = 60.0
_PAUSE_S: Final = 0.5


def _add_migrate(parser: Parser) -> None:
    verbs = parser.add_subparsers(title="what to do", metavar="WHAT", required=True)
    _add_mosquitto(verbs)


def _add_mosquitto(verbs: Any) -> None:
    text = "say what becomes of each line of mosquitto.conf and its files; with --apply, move"
    command = verbs.add_parser("mosquitto", help=text, description=f"{text[0].upper()}{text[1:]}.")
    command.add_argument("conf", metavar="CONF", type=Path, help="mosquitto.conf")
    command.add_argument(
        "--write",
        metavar="FILE",
        type=Path,
        help="write a penstock.toml, and an ACL file beside it",
    )
    command.add_argument(
        "--apply",
        action="store_true",
        help="put users, retained messages, sessions and waiting messages into the gateway at --url",
    )
    command.add_argument("--mqtt", metavar="HOST:PORT", help="its MQTT listener (default: the gateway says)")
    command.add_argument("--vhost", default="/")
    command.add_argument(
        "--anonymous", metavar="USER", default="guest", help="the user of clients without a user name (guest)"
    )
    command.add_argument(
        "--state",
        metavar="FILE",
        type=Path,
        default=Path("penstock-migrate.json"),
        help="notes how far --apply came; the same command goes on there (default: %(default)s)",
    )
    command.add_argument("-o", "--output", choices=("table", "json"), default="table")
    add_target(command)
    command.set_defaults(run=_mosquitto)


def _mosquitto(parsed: argparse.Namespace) -> int:
    from penstock.migrate.mosquitto import apply as applying
    from penstock.migrate.mosquitto import database as databases
    from penstock.migrate.mosquitto.convert import convert
    from penstock.migrate.mosquitto.summary import summarize

    made = convert(parsed.conf)
    database = databases.read(made.database) if made.database is not None else None
    if made.database is not None and database is not None:
        summarize(made.database, database, applying.owner_in(made, parsed.anonymous), made.report)
    acl = Path(f"{parsed.write or 'penstock.toml'}.acl").absolute()
    if made.acl:
        made.report.options["mqtt.acl_file"] = str(acl)
    if not parsed.apply:
        _show(made.report, parsed.output)
    if parsed.write is not None:
        _write(parsed.write, made.report.toml())
        if made.acl:
            _write(acl, made.acl)
    if not parsed.apply:
        return 0
    with Client(parsed.url) as client:
        api = _Retrying(client)
        target = applying.Target(
            api=api,
            mqtt=_place(parsed.mqtt) if parsed.mqtt else _mqtt_of(api, client),
            vhost=parsed.vhost,
            anonymous=parsed.anonymous,
            timeout_s=_TIMEOUT_S,
        )
        outcome = applying.apply(made, database, target, parsed.state, _bar("steps"))
    if parsed.output == "json":
        print(json.dumps(asdict(outcome), indent=2))
        return 1 if outcome.refused else 0
    if outcome.resumed_at:
        print(f"went on after step {outcome.resumed_at}")
    print(f"users {outcome.users}, messages {outcome.published}, sessions {outcome.sessions}")
    for name in outcome.kept:
        print(f"penstock: user '{name}' has tags here and stays as it is", file=sys.stderr)
    for line in outcome.refused:
        print(f"penstock: refused: {line}", file=sys.stderr)
    return 1 if outcome.refused else 0


class _Retrying:
    """A client that waits for a gateway that starts again."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def request(self, method: str, path: str, body: object = None) -> Any:
        """See `Client.request`. Requests of a move may be repeated."""
        until = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                return self._client.request(method, path, body)
            except ApiError as error:
                if error.status != 0 or time.monotonic() > until:
                    raise
                time.sleep(_PAUSE_S)


def _mqtt_of(api: _Retrying, client: Client) -> tuple[str, int]:
    """The plain MQTT listener, as the gateway says."""
    for listener in api.request("GET", "overview")["listeners"]:
        if listener["protocol"] == "mqtt":
            return client.address.rpartition(":")[0], int(listener["port"])
    raise ConfigError("the gateway has no MQTT listener without TLS; name one with --mqtt HOST:PORT")


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"{text!r} is no HOST:PORT")
    return host.strip("[]"), int(port)


def _bar(unit: str) -> Callable[[int, int], None]:
    """A bar with rate and time left, on a terminal only; from how many are done and all."""
    from tqdm import tqdm

    bar = tqdm(unit=f" {unit}", disable=not sys.stderr.isatty(), leave=False)

    def update(done: int, total: int) -> None:
        if bar.total is None:
            # The rate is that of this run.
            bar.total, bar.initial, bar.n = total, done - 1, done - 1
        bar.update(done - bar.n)

    return update


def _show(report: Report, output: str) -> None:
    if output == "json":
        entries = [
            {"place": str(e.place), "line": e.text, "fate": e.fate, "note": e.note} for e in report.entries
        ]
        print(json.dumps({"entries": entries, "options": report.options}, indent=2))
        return
    for line in report.lines():
        print(line)
    print("\n# penstock.toml\n" + report.toml(), end="")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise ConfigError(f"cannot write it: {error.strerror}", source=str(path)) from error


COMMANDS: Final[dict[str, Builder]] = {"migrate": _add_migrate}
