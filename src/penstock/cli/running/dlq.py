"""`penstock dlq ...`: look at dead letters, and put them back."""

from __future__ import annotations

import argparse
from typing import Final

from penstock.cli.parsing import Builder, Parser
from penstock.cli.running.client import Client, segment
from penstock.cli.running.nouns import argument, columns, verbs_of
from penstock.cli.running.paths import AT_ONCE, Item, base, batches, count, give_back
from penstock.cli.tables import print_list, print_rows
from penstock.cli.terminal import progress

__all__ = ["COMMANDS"]

_LEASE_MS: Final = 600_000


def _add_dlq(parser: Parser) -> None:
    vhost = argument("--vhost", default="/", help="the vhost (default: /)")
    name = argument("name", metavar="NAME")
    dlq = verbs_of(parser)
    dlq("list", _list_dead, vhost, columns("name,messages,from"), help="queues that dead letters go to")
    most = argument("--max", type=count, default=1000, help="at most so many (default: %(default)s)")
    dlq("peek", _peek, vhost, name, most, columns("id,queue,reason,count,time,value"), help="look at some")
    dlq(
        "redrive",
        _redrive,
        vhost,
        name,
        most,
        argument("--reason", choices=("rejected", "expired", "maxlen", "delivery_limit"), help="only these"),
        argument("--to", metavar="QUEUE", help="not back to where they came from, but there"),
        argument("--dry-run", action="store_true", help="say what would be done"),
        help="put dead letters back, each together with its removal or not at all",
    )


def _list_dead(client: Client, parsed: argparse.Namespace) -> None:
    """The queues that arguments and policies of other queues lead to."""
    queues = client.get(f"queues/{segment(parsed.vhost)}")
    bindings = client.get(f"bindings/{segment(parsed.vhost)}")
    sources: dict[str, list[str]] = {}
    for queue in queues:
        rules = {**(queue.get("effective_policy_definition") or {}), **_arguments(queue)}
        exchange = rules.get("dead-letter-exchange")
        if exchange is None:
            continue
        key = rules.get("dead-letter-routing-key")
        for binding in bindings:
            if binding["source"] == exchange and binding["destination_type"] == "queue":
                if exchange or binding["routing_key"] == (key or queue["name"]):
                    sources.setdefault(binding["destination"], []).append(queue["name"])
    for hook in client.get(f"webhooks/{segment(parsed.vhost)}"):
        # The queue is made with the first dead letter (docs/reference/webhooks.md).
        sources.setdefault(f"webhook.{hook['name']}.dead", []).append(f"webhook {hook['name']}")
    found = [
        {"name": queue["name"], "messages": queue["messages"], "from": ",".join(sources[queue["name"]])}
        for queue in queues
        if queue["name"] in sources
    ]
    print_list(found, parsed.columns, parsed.output)


def _arguments(queue: Item) -> Item:
    return {name.removeprefix("x-"): value for name, value in (queue.get("arguments") or {}).items()}


def _death(message: Item) -> Item:
    """The first entry of x-death: how it died last. Empty: it is no dead letter."""
    deaths = message["headers"].get("x-death")
    death = deaths[0] if isinstance(deaths, list) and deaths else {}
    return death if isinstance(death, dict) and isinstance(death.get("queue"), str) else {}


def _leased(client: Client, parsed: argparse.Namespace) -> tuple[str, list[Item]]:
    path = f"{base(parsed)}/queues/{segment(parsed.name)}"
    found: list[Item] = []
    while len(found) < parsed.max:
        body = {"max_messages": min(parsed.max - len(found), AT_ONCE), "wait_ms": 100, "lease_ms": _LEASE_MS}
        messages = client.request("POST", f"{path}/pull", body)["messages"]
        if not messages:
            break
        found += messages
    return path, found


def _peek(client: Client, parsed: argparse.Namespace) -> None:
    path, messages = _leased(client, parsed)
    give_back(client, path, messages)
    rows: list[Item] = []
    for message in messages:
        death = _death(message)
        value = message["value"] if "value" in message else message["value_b64"]
        rows.append({**death, **message, "value": value if parsed.output == "json" else value[:60]})
    print_list(rows, parsed.columns, parsed.output)


def _redrive(client: Client, parsed: argparse.Namespace) -> None:
    path, messages = _leased(client, parsed)
    chosen: list[Item] = []
    others: list[Item] = []
    for message in messages:
        death = _death(message)
        right = bool(parsed.to or death) and parsed.reason in (None, death.get("reason"))
        (chosen if right else others).append(message)
    if parsed.dry_run:
        give_back(client, path, messages)
        rows = [{"id": one["id"], "to": parsed.to or _death(one)["queue"]} for one in chosen]
        print_rows(rows, ("id", "to"), "table")
        return
    give_back(client, path, others)
    done = 0
    with progress(len(chosen), "redriven", unit="messages") as did:
        for batch in batches(chosen):
            body = {
                "publish": [_again(one, parsed.to or _death(one)["queue"]) for one in batch],
                "ack": [{"queue": parsed.name, "handles": [one["handle"] for one in batch]}],
            }
            client.request("POST", f"{base(parsed)}/transactions", body)
            done += len(batch)
            did(len(batch))
    print(f"{done} redriven, {len(others)} left")


def _again(message: Item, queue: str) -> Item:
    """The message as it was, for its queue; how it died is forgotten."""
    kept = (
        "value",
        "value_b64",
        "content_type",
        "message_id",
        "correlation_id",
        "reply_to",
        "type",
        "priority",
    )
    headers = {
        name: value
        for name, value in message["headers"].items()
        if name != "x-death" and not name.startswith(("x-first-death-", "x-last-death-"))
    }
    return {
        "queue": queue,
        **{name: message[name] for name in kept if name in message},
        **({"headers": headers} if headers else {}),
        "persistent": message.get("delivery_mode") == 2,
    }


COMMANDS: Final[dict[str, Builder]] = {"dlq": _add_dlq}
