"""`penstock topics ...` and `penstock subs ...`: streams, and the subscriptions to them."""

from __future__ import annotations

import argparse
import re
from typing import Any, Final

from penstock.cli.parsing import Builder, Parser
from penstock.cli.running.client import Client, segment
from penstock.cli.running.nouns import OUTPUT, argument, columns, verbs_of
from penstock.cli.running.paths import Item, base, subscription, subscription_path
from penstock.cli.tables import print_list, print_record

__all__ = ["COMMANDS"]

_TOPICS: Final = "name,messages,first_offset,next_offset,max_age,max_bytes"
_SUBS: Final = "stream,name,kind,paused,backlog,unacked,head_age_ms,consumers,acknowledged"


_VHOST: Final = argument("--vhost", default="/", help="the vhost (default: /)")


def _add_topics(parser: Parser) -> None:
    name = argument("name", metavar="NAME")
    topics = verbs_of(parser)
    topics("list", _list_topics, _VHOST, columns(_TOPICS), help="list topics")
    topics("show", _show_topic, _VHOST, name, OUTPUT, help="what a topic has")
    topics(
        "create",
        _create_topic,
        _VHOST,
        name,
        argument("--max-age", metavar="AGE", type=_age, help="what is older is dropped, for example 7D"),
        argument("--max-bytes", type=int, metavar="N", help="what is above is dropped, the oldest first"),
        help="make a topic",
    )
    topics("delete", _delete_topic, _VHOST, name, help="delete a topic with its messages and subscriptions")


def _add_subs(parser: Parser) -> None:
    subs = verbs_of(parser)
    one = argument("name", metavar="TOPIC/NAME", type=subscription)
    topic = argument("topic", metavar="TOPIC", nargs="?", help="only those to this one")
    subs("list", _list_subs, _VHOST, topic, columns(_SUBS), help="list the subscriptions to topics")
    subs("show", _show_sub, _VHOST, one, OUTPUT, help="where a subscription stands")
    subs(
        "create",
        _create_sub,
        _VHOST,
        one,
        argument("--kind", choices=("shared", "exclusive", "failover", "key_shared"), default="shared"),
        argument("--start", default="latest", help='"earliest", "latest", "pos:N", "-1h" or a time'),
        argument("--max-deliveries", type=int, metavar="N"),
        argument("--dead-letter", metavar="QUEUE", help="where messages go after that"),
        help="make a subscription",
    )
    subs("seek", _seek, _VHOST, one, argument("to", metavar="TO", help="as --start"), help="go on elsewhere")
    subs("pause", _post("pause"), _VHOST, one, help="nobody gets anything until it is resumed")
    subs("resume", _post("resume"), _VHOST, one, help="the end of a pause")
    subs("delete", _delete_sub, _VHOST, one, help="end a subscription")


def _age(text: str) -> str:
    if not re.fullmatch("[0-9]+[YMDhms]", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no number with Y, M, D, h, m or s, such as 7D")
    return text


def _topic_path(parsed: argparse.Namespace) -> str:
    return f"{base(parsed)}/streams/{segment(parsed.name)}"


def _list_topics(client: Client, parsed: argparse.Namespace) -> None:
    print_list(client.pages(f"{base(parsed)}/streams", "streams"), parsed.columns, parsed.output)


def _show_topic(client: Client, parsed: argparse.Namespace) -> None:
    print_record(client.get(_topic_path(parsed)), parsed.output)


def _create_topic(client: Client, parsed: argparse.Namespace) -> None:
    body = {"max_age": parsed.max_age, "max_bytes": parsed.max_bytes}
    client.request("PUT", _topic_path(parsed), {name: value for name, value in body.items() if value})


def _delete_topic(client: Client, parsed: argparse.Namespace) -> None:
    client.request("DELETE", _topic_path(parsed))


def _list_subs(client: Client, parsed: argparse.Namespace) -> None:
    topics = [parsed.topic]
    if parsed.topic is None:
        topics = [stream["name"] for stream in client.pages(f"{base(parsed)}/streams", "streams")]
    found: list[Item] = []
    for topic in topics:
        found += client.pages(f"{base(parsed)}/streams/{segment(topic)}/subscriptions", "subscriptions")
    print_list(found, parsed.columns, parsed.output)


def _show_sub(client: Client, parsed: argparse.Namespace) -> None:
    print_record(client.get(subscription_path(parsed, parsed.name)), parsed.output)


def _create_sub(client: Client, parsed: argparse.Namespace) -> None:
    body: Item = {"kind": parsed.kind, "start": parsed.start}
    if parsed.max_deliveries is not None:
        body["max_deliveries"] = parsed.max_deliveries
    if parsed.dead_letter is not None:
        body["dead_letter"] = parsed.dead_letter
    client.request("PUT", subscription_path(parsed, parsed.name), body)


def _seek(client: Client, parsed: argparse.Namespace) -> None:
    client.request("POST", subscription_path(parsed, parsed.name) + "/seek", {"to": parsed.to})


def _post(verb: str) -> Any:
    def action(client: Client, parsed: argparse.Namespace) -> None:
        client.request("POST", f"{subscription_path(parsed, parsed.name)}/{verb}")

    return action


def _delete_sub(client: Client, parsed: argparse.Namespace) -> None:
    client.request("DELETE", subscription_path(parsed, parsed.name))


COMMANDS: Final[dict[str, Builder]] = {"topics": _add_topics, "subs": _add_subs}
