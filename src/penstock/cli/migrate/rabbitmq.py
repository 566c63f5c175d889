"""`penstock migrate rabbitmq`: definitions and messages of a RabbitMQ that runs, and the way back."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import secrets
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from penstock.cli.migrate.shared import RetryingClient, add_wait, listener_of, place, show
from penstock.cli.running.client import ApiError, Client, segment
from penstock.cli.running.nouns import add_target
from penstock.cli.terminal import progress

if TYPE_CHECKING:
    from collections.abc import Mapping
    from http.client import HTTPResponse

    from penstock.migrate.rabbitmq.moving import Drained
    from penstock.migrate.report import Report

__all__ = ["add_rabbitmq"]

_MOVER: Final = "penstock-migrate"
"""The user that publishes at the target. It exists while that happens."""


def add_rabbitmq(verbs: Any) -> None:
    """Add the verb."""
    text = "compare with a RabbitMQ; with --apply, move definitions and messages from it"
    command = verbs.add_parser("rabbitmq", help=text, description=f"{text[0].upper()}{text[1:]}.")
    command.add_argument("source", metavar="URL", help="its management API: http://USER:PASSWORD@HOST:15672")
    command.add_argument("--apply", action="store_true", help="move; without it nothing changes")
    command.add_argument("--reverse", action="store_true", help="from penstock to RabbitMQ: the way back")
    command.add_argument(
        "--only", choices=("definitions", "messages"), help="move one of both (default: both)"
    )
    command.add_argument("--queues", metavar="REGEX", type=_pattern, help="queues whose whole name matches")
    command.add_argument(
        "--follow", action="store_true", help="go on with empty queues until Ctrl-C, while publishers move"
    )
    command.add_argument("--parallel", metavar="N", type=int, default=4, help="queues at a time (4)")
    command.add_argument(
        "--rabbitmq-amqp", metavar="HOST:PORT", help="RabbitMQ's AMQP listener (default: its API says)"
    )
    command.add_argument("--amqp", metavar="HOST:PORT", help="penstock's (default: its API says)")
    command.add_argument("-o", "--output", choices=("table", "json"), default="table")
    add_wait(command)
    add_target(command)
    command.set_defaults(run=_rabbitmq)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"not a regular expression: {error}") from error


class _RabbitMQ(Client):
    """RabbitMQ's management API, with the user in the URL: PENSTOCK_USER is a user of penstock."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        super().__init__(url, login=(unquote(parts.username or "guest"), unquote(parts.password or "guest")))

    def _refused(self, text: bytes, answer: HTTPResponse, *, wanted: bool) -> ApiError:
        found = super()._refused(text, answer, wanted=wanted)
        if found.status not in (401, 403):
            return ApiError(found.message, found.status)  # the remedies are commands of penstock
        said = f"RabbitMQ at {self.address} refused user '{self.user}'"
        remedy = "name a user with the tag administrator: http://USER:PASSWORD@HOST:PORT"
        return ApiError(said, found.status, remedy=remedy)

    def _unreachable(self, error: Exception) -> ApiError:
        return ApiError(
            f"no answer from RabbitMQ's management API at {self.address}: {error}",
            0,
            remedy="start it, enable its plug-in rabbitmq_management, or correct the URL",
        )


class _Side:
    """One of both brokers."""

    def __init__(self, client: Client, amqp: str | None, wait_s: float) -> None:
        self.client = client
        self.api = RetryingClient(client, wait_s)
        self._amqp = amqp

    def amqp(self) -> tuple[str, int]:
        return place(self._amqp) if self._amqp else listener_of(self.api, "amqp", self.client.address)


def _rabbitmq(parsed: argparse.Namespace) -> int:
    rabbitmq = _Side(_RabbitMQ(parsed.source), parsed.rabbitmq_amqp, parsed.wait)
    penstock = _Side(Client(parsed.url), parsed.amqp, parsed.wait)
    source, target = (penstock, rabbitmq) if parsed.reverse else (rabbitmq, penstock)
    with source.client, target.client:
        report, definitions = _compare(source, target, reverse=parsed.reverse)
        if not parsed.apply:
            if parsed.only != "messages":
                show(report, parsed.output)
                if not report.entries and parsed.output != "json":
                    print("the definitions do not differ")
            return 1 if _mistakes(report) else 0
        if parsed.only != "messages":
            if mistakes := _mistakes(report):
                raise ApiError("; ".join(mistakes), 0, remedy="correct that, or use --only messages")
            target.api.request("POST", "definitions", definitions)
            if parsed.output != "json":
                print(f"moved definitions: {_counted(definitions)}")
        if parsed.only == "definitions":
            return 0
        return _move_messages(parsed, source, target)


def _counted(definitions: Mapping[str, Any]) -> str:
    """How many of each kind there are."""
    counts = {kind: len(found) for kind, found in definitions.items() if isinstance(found, list)}
    return ", ".join(f"{kind.replace('_', ' ')} {count}" for kind, count in counts.items() if count)


def _compare(source: _Side, target: _Side, *, reverse: bool) -> tuple[Report, Any]:
    from penstock.migrate.rabbitmq.definitions import (
        for_rabbitmq,
        say_changes,
        say_ineffective,
        without_links,
    )
    from penstock.migrate.report import Place, Report

    report, where = Report(), Place(source.client.address, 0)
    definitions = without_links(source.api.request("GET", "definitions"), where, report)
    if reverse:
        there = target.api.request("GET", "definitions")
        return report, for_rabbitmq(definitions, there, where, report)
    say_ineffective(definitions, where, report)
    try:
        found = target.api.request("POST", "definitions-dry-run", definitions)
    except ApiError as error:
        if error.status != 400:
            raise
        report.add(where, "definitions", "wrong", str(error))
    else:
        say_changes(found, found["unknown"], where, report)
    return report, definitions


def _mistakes(report: Report) -> list[str]:
    return [f"{entry.text}: {entry.note}" for entry in report.entries if entry.fate == "wrong"]


def _move_messages(parsed: argparse.Namespace, source: _Side, target: _Side) -> int:
    from penstock.migrate.rabbitmq.moving import Plan, drain
    from penstock.migrate.rabbitmq.queues import choose
    from penstock.protocols.links.amqp.place import Place

    chosen, left = choose(source.api.request("GET", "queues"), parsed.queues)
    password = secrets.token_urlsafe(24)
    user = {"password": password, "tags": "impersonator"}
    target.api.request("PUT", f"users/{_MOVER}", user)
    for vhost in sorted({queue.vhost for queue in chosen}):
        path = f"permissions/{segment(vhost)}/{_MOVER}"
        target.api.request("PUT", path, {"configure": "", "write": ".*", "read": ""})
    plan = Plan(
        source=Place.tcp(*source.amqp(), source.client.user, source.client.password),
        target=Place.tcp(*target.amqp(), _MOVER, password),
        queues=tuple((queue.vhost, queue.name) for queue in chosen),
        parallel=parsed.parallel,
        follow=parsed.follow,
        wait_s=parsed.wait,
    )
    total = sum(queue.messages for queue in chosen)
    try:
        with progress(total, "moving", unit="messages") as on_moved:
            results = asyncio.run(drain(plan, on_moved))
    finally:
        target.api.request("DELETE", f"users/{_MOVER}")
    _say(results, left, parsed.output)
    return 1 if any(result.failure for result in results) else 0


def _say(results: list[Drained], left: list[tuple[str, str]], output: str) -> None:
    if output == "json":
        print(json.dumps({"queues": [asdict(one) for one in results], "left_out": dict(left)}, indent=2))
        return
    print(f"moved messages: {sum(one.moved for one in results)}, of queues: {len(results)}")
    for one in results:
        if one.interruptions:
            print(f"queue '{one.queue}' in vhost '{one.vhost}': {one.interruptions} lost connections")
    for one in results:
        if one.failure:
            print(f"penstock: queue '{one.queue}' in vhost '{one.vhost}': {one.failure}", file=sys.stderr)
    for name, reason in left:
        print(f"penstock: left out: queue '{name}': {reason}", file=sys.stderr)
