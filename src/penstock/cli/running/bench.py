"""`penstock bench`: how fast a running gateway takes messages and hands them out, as this machine sees it.

Messages go over HTTP in requests of 500 into a queue of its own, which is deleted afterwards, and are pulled
from there. So it is a check whether an installation is sound, and no figure of what the gateway can do over
AMQP, MQTT or the native protocol: those cost far less per message.
"""

from __future__ import annotations

import argparse
import secrets
import time
from typing import Any, Final

from penstock.cli.parsing import Builder, Parser
from penstock.cli.running.client import ApiError, Client, segment
from penstock.cli.running.nouns import add_target, runner
from penstock.cli.running.paths import AT_ONCE, base
from penstock.cli.tables import print_rows
from penstock.cli.terminal import progress

__all__ = ["COMMANDS"]


def _add_bench(bench: Parser) -> None:
    bench.description = "Publish and pull some messages over HTTP, and say how fast that was."
    add_target(bench)
    bench.add_argument("--vhost", default="/", help="the vhost (default: /)")
    bench.add_argument("--messages", type=int, default=50_000, help="default: %(default)s")
    bench.add_argument("--size", type=int, default=100, help="bytes of a body (default: %(default)s)")
    bench.add_argument("--ack", choices=("fsync", "written", "none"), default="fsync")
    bench.add_argument("-o", "--output", choices=("table", "json"), default="table")
    bench.set_defaults(run=runner(_bench))


def _bench(client: Client, parsed: argparse.Namespace) -> None:
    if parsed.messages < 1 or parsed.size < 0:
        raise ApiError("--messages is at least 1, --size at least 0", 0)
    name = f"penstock-bench-{secrets.token_hex(4)}"
    where = f"queues/{segment(parsed.vhost)}/{name}"
    # Should this process be killed, the queue goes when nobody has used it for an hour.
    client.request("PUT", where, {"durable": True, "arguments": {"x-expires": 3_600_000}})
    path = f"{base(parsed)}/queues/{name}"
    try:
        rows = [_publish(client, path, parsed), _pull(client, path, parsed)]
    finally:
        client.request("DELETE", where)
    print_rows(rows, ("what", "messages", "seconds", "messages_per_s", "p50_ms", "p99_ms"), parsed.output)


def _row(what: str, messages: int, times: list[float]) -> dict[str, Any]:
    total, ordered = sum(times), sorted(times)
    return {
        "what": what,
        "messages": messages,
        "seconds": round(total, 3),
        "messages_per_s": round(messages / total) if total else 0,
        "p50_ms": round(ordered[len(ordered) // 2] * 1000, 2),
        "p99_ms": round(ordered[len(ordered) * 99 // 100] * 1000, 2),
    }


def _publish(client: Client, path: str, parsed: argparse.Namespace) -> dict[str, Any]:
    times: list[float] = []
    left = parsed.messages
    body = "x" * parsed.size
    with progress(parsed.messages, "published", unit="messages") as did:
        while left:
            count = min(left, AT_ONCE)
            before = time.perf_counter()
            client.request(
                "POST", f"{path}/messages?ack={parsed.ack}", {"messages": [{"value": body}] * count}
            )
            times.append(time.perf_counter() - before)
            left -= count
            did(count)
    return _row(f"publish, {AT_ONCE} at once, ack={parsed.ack}", parsed.messages, times)


def _pull(client: Client, path: str, parsed: argparse.Namespace) -> dict[str, Any]:
    times: list[float] = []
    left = parsed.messages
    with progress(parsed.messages, "pulled", unit="messages") as did:
        while left:
            before = time.perf_counter()
            body = {"max_messages": AT_ONCE, "wait_ms": 10_000}
            messages = client.request("POST", f"{path}/pull", body)["messages"]
            if not messages:
                raise ApiError(f"{left} messages did not come back", 0)
            client.request("POST", f"{path}/ack", {"handles": [one["handle"] for one in messages]})
            times.append(time.perf_counter() - before)
            left -= len(messages)
            did(len(messages))
    return _row(f"pull and ack, {AT_ONCE} at once", parsed.messages, times)


COMMANDS: Final[dict[str, Builder]] = {"bench": _add_bench}
