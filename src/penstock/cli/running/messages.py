"""Commands that move messages or find them: `penstock pub`, `sub`, `tail`, `search`.

They use the data plane, which the management address serves too.
"""

from __future__ import annotations

import argparse
import json
import sys
from base64 import b64encode
from contextlib import nullcontext
from io import TextIOBase
from typing import Final

from penstock.cli.hints import command
from penstock.cli.parsing import Builder, Parser
from penstock.cli.running.client import ApiError, Client, segment
from penstock.cli.running.nouns import Action, add_target, runner
from penstock.cli.running.paths import (
    AT_ONCE,
    Item,
    base,
    batches,
    count,
    give_back,
    subscription,
    subscription_path,
)
from penstock.cli.streams import bytes_of
from penstock.cli.terminal import progress
from penstock.errors import ConfigError

__all__ = ["COMMANDS"]

_LEASE_MS: Final = 60_000


def _begin(verb: argparse.ArgumentParser, description: str, action: Action) -> None:
    """Give a verb what all of them have."""
    verb.description = description
    add_target(verb)
    verb.add_argument("--vhost", default="/", help="the vhost (default: /)")
    verb.set_defaults(run=runner(action))


def _add_output(verb: Parser) -> None:
    """How much is printed, and how."""
    verb.add_argument("--max", type=count, help="end after so many")
    verb.add_argument("--json", action="store_true", help="print whole messages, one JSON object per line")


def _add_pub(pub: Parser) -> None:
    _begin(pub, "Publish messages: the words given, or each line of standard input.", _pub)
    to = pub.add_mutually_exclusive_group(required=True)
    to.add_argument("--queue", help="into this queue")
    to.add_argument("--topic", help="into this topic")
    to.add_argument("--exchange", help="through this exchange")
    pub.add_argument("--routing-key", help="for an exchange (default: empty)")
    pub.add_argument(
        "--mandatory",
        action="store_true",
        help="fail if a message reaches no queue; with --queue and --topic that always fails",
    )
    pub.add_argument("--key", help="the ordering key")
    pub.add_argument("--header", action="append", default=[], metavar="NAME=VALUE")
    pub.add_argument(
        "--json", action="store_true", help="each message is a JSON object, as docs/reference/http.md has it"
    )
    pub.add_argument("messages", nargs="*", metavar="MESSAGE")


def _add_sub(sub: Parser) -> None:
    _begin(sub, "Take messages of a queue or a subscription, print and acknowledge them.", _sub)
    source = sub.add_mutually_exclusive_group(required=True)
    source.add_argument("--queue")
    source.add_argument("--subscription", metavar="TOPIC/NAME", type=subscription)
    sub.near["--topic"] = "--subscription"
    sub.add_argument("--consumer", help="its name, for subscriptions that are not shared")
    sub.add_argument("--drain", action="store_true", help="end when there is nothing more")
    _add_output(sub)


def _add_tail(tail: Parser) -> None:
    _begin(
        tail, "Print what passes an exchange, MQTT topics or a topic, and take nothing from anybody.", _tail
    )
    source = tail.add_mutually_exclusive_group(required=True)
    source.add_argument("--exchange")
    source.add_argument("--mqtt", metavar="FILTER", help="a topic filter of MQTT, such as a/+/b")
    source.add_argument("--topic")
    tail.add_argument("--pattern", default="#", help="of an exchange (default: %(default)s)")
    tail.add_argument(
        "--from",
        dest="since",
        default="next",
        help="where to begin: first, next, -1h or a time; of a topic also an offset (default: %(default)s)",
    )
    _add_output(tail)


def _add_search(search: Parser) -> None:
    _begin(search, "Find messages in the log: all that is asked for must hold.", _search)
    search.add_argument(
        "--from", dest="since", default="-1h", help="first, -1h, pos:N or a time (default: %(default)s)"
    )
    search.add_argument("--to", help="as --from (default: now)")
    place = search.add_mutually_exclusive_group()
    place.add_argument("--queue", help="a queue or a topic")
    place.add_argument("--mqtt", metavar="FILTER", help="a topic filter of MQTT, such as a/+/b")
    place.add_argument("--exchange")
    search.add_argument("--pattern", help="of routing keys, with * and #")
    search.add_argument("--header", action="append", default=[], metavar="NAME=VALUE")
    search.add_argument("--message-id")
    search.add_argument("--correlation-id")
    search.add_argument("--contains", help="text in the body")
    _add_output(search)


def _search(client: Client, parsed: argparse.Namespace) -> None:
    fields: Item = {
        "from": None if parsed.since == "first" else parsed.since,
        "to": parsed.to,
        "queue": parsed.queue,
        "topic": parsed.mqtt,
        "exchange": parsed.exchange,
        "routing_key": parsed.pattern,
        "headers": dict(_pair(text) for text in parsed.header) or None,
        "message_id": parsed.message_id,
        "correlation_id": parsed.correlation_id,
        "body": None if parsed.contains is None else {"contains": parsed.contains},
    }
    body = {name: value for name, value in fields.items() if value is not None}
    left, done = parsed.max, 0
    with progress(100, "searched", unit="%") as did:
        while left is None or left > 0:
            body["max"] = min(left or AT_ONCE, AT_ONCE)
            found = client.request("POST", f"{base(parsed)}/log/search", body)
            for message in found["messages"]:
                _print_message(message, whole=parsed.json)
            sys.stdout.flush()
            if left is not None:
                left -= len(found["messages"])
            share = int(100 * found["progress"])
            did(share - done)
            done = share
            if "cursor" not in found:
                return
            body["cursor"] = found["cursor"]


def _pub(client: Client, parsed: argparse.Namespace) -> None:
    headers = dict(_pair(text) for text in parsed.header)
    if parsed.routing_key is not None and parsed.exchange is None:
        raise ConfigError(
            "--routing-key is for an exchange only",
            remedy="leave it out, or name an exchange with --exchange",
        )
    if parsed.queue is not None:
        path = f"{base(parsed)}/queues/{segment(parsed.queue)}/messages"
    elif parsed.topic is not None:
        path = f"{base(parsed)}/streams/{segment(parsed.topic)}/messages"
    else:
        path = f"{base(parsed)}/exchanges/{segment(parsed.exchange or 'amq.default')}/messages"
        path += "?mandatory=true" if parsed.mandatory else ""

    def item(text: str) -> Item:
        found: Item = _value(text)
        if parsed.json:
            try:
                found = json.loads(found["value"])
            except (ValueError, KeyError) as error:
                raise ApiError(f"not JSON: {bytes_of(text)[:100]!r}", 0) from error
        if parsed.exchange is not None:
            found.setdefault("routing_key", parsed.routing_key or "")
        if parsed.key is not None:
            found.setdefault("key", parsed.key)
        if headers:
            found["headers"] = {**headers, **(found.get("headers") or {})}
        return found

    typed = not parsed.messages and isinstance(sys.stdin, TextIOBase) and sys.stdin.isatty()
    if typed:
        print("each line is a message; Ctrl-D ends", file=sys.stderr)
    lines = parsed.messages or (line.rstrip("\n") for line in sys.stdin)
    lost = 0
    # A bar would be drawn over words that are being typed.
    bar = (
        nullcontext(_ignore)
        if typed
        else progress(len(parsed.messages) or None, "published", unit="messages")
    )
    with bar as did:
        for batch in batches(map(item, lines)):
            try:
                answer = client.request("POST", path, {"messages": batch})
            except ApiError as error:
                if parsed.exchange is None or error.status != 422 or error.remedy:
                    raise
                raise ApiError(error.message, 422, remedy=f"bind a queue with {_bind(parsed)}") from error
            refused = [one["error"] for one in answer["results"] if "error" in one]
            if refused:
                first = refused[0].get("detail") or refused[0]["code"]
                raise ApiError(f"{len(refused)} of {len(batch)} messages were refused: {first}", 0)
            lost += sum(one.get("routed") is False for one in answer["results"])
            did(len(batch))
    if lost:
        print(
            f"penstock: {lost} of the messages reached no queue: nothing is bound to exchange "
            f"'{parsed.exchange}' with their routing keys. Bind a queue with {_bind(parsed)}, or use "
            "--mandatory to fail instead.",
            file=sys.stderr,
        )


def _value(text: str) -> Item:
    """The body of a message; what is not UTF-8 travels as Base64."""
    octets = bytes_of(text)
    try:
        return {"value": octets.decode()}
    except UnicodeDecodeError:
        return {"value_b64": b64encode(octets).decode("ascii")}


def _bind(parsed: argparse.Namespace) -> str:
    """The command that binds a queue where messages were published."""
    key = parsed.routing_key or ""
    return command("exchanges", "bind", parsed.exchange, "QUEUE", "--routing-key", key, vhost=parsed.vhost)


def _ignore(count: int) -> None:
    pass


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ApiError(f"a header is NAME=VALUE, not {text!r}", 0)
    return name, value


def _sub(client: Client, parsed: argparse.Namespace) -> None:
    if parsed.queue is not None:
        path = f"{base(parsed)}/queues/{segment(parsed.queue)}"
    else:
        path = subscription_path(parsed, parsed.subscription)
    left = parsed.max
    while left is None or left > 0:
        body: Item = {
            "max_messages": min(left or AT_ONCE, AT_ONCE),
            "wait_ms": 200 if parsed.drain else 30_000,
            "lease_ms": _LEASE_MS,
        }
        if parsed.consumer is not None:
            body["consumer"] = parsed.consumer
        messages = _pulled(client, parsed, path, body)
        if not messages and parsed.drain:
            return
        handles = [message.pop("handle") for message in messages]
        try:
            for message in messages:
                _print_message(message, whole=parsed.json)
            sys.stdout.flush()
        except (OSError, KeyboardInterrupt):
            # Only what was printed is done: who reads our output may have gone away.
            give_back(client, path, [{"handle": handle} for handle in handles])
            raise
        if messages:
            client.request("POST", f"{path}/ack", {"handles": handles})
        if left is not None:
            left -= len(messages)


def _pulled(client: Client, parsed: argparse.Namespace, path: str, body: Item) -> list[Item]:
    try:
        messages: list[Item] = client.request("POST", f"{path}/pull", body)["messages"]
    except ApiError as error:
        if error.status != 409 or parsed.queue is None:
            raise
        tail = command("tail", "--topic", parsed.queue, "--from", "first", vhost=parsed.vhost)
        raise ApiError(error.message, 409, remedy=f"a topic is read with {tail}") from error
    return messages


def _print_message(message: Item, *, whole: bool) -> None:
    if whole:
        print(json.dumps(message))
    else:
        print(message["value"] if "value" in message else message["value_b64"])


def _tail(client: Client, parsed: argparse.Namespace) -> None:
    if parsed.topic is not None:
        path = f"{base(parsed)}/streams/{segment(parsed.topic)}/tail?from={segment(parsed.since)}"
    elif parsed.mqtt is not None:
        path = f"{base(parsed)}/tail?topic={segment(parsed.mqtt)}&from={segment(parsed.since)}"
    else:
        path = f"{base(parsed)}/exchanges/{segment(parsed.exchange)}/tail?pattern={segment(parsed.pattern)}"
        path += f"&from={segment(parsed.since)}"
    left = parsed.max
    kind = "message"
    for line in client.lines(path):
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data" and kind != "message":
            print(f"{kind}: {value}", file=sys.stderr)
            if kind == "end":
                return
            kind = "message"
        elif name == "data":
            _print_message(json.loads(value), whole=parsed.json)
            sys.stdout.flush()
            if left is not None:
                left -= 1
                if left <= 0:
                    return


COMMANDS: Final[dict[str, Builder]] = {
    "pub": _add_pub,
    "sub": _add_sub,
    "tail": _add_tail,
    "search": _add_search,
}
