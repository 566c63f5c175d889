"""Chooses the queues whose messages are moved, and says why others are not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.management.definitions.kinds import is_session

__all__ = ["Queue", "choose"]


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue of the source."""

    vhost: str
    name: str
    messages: int
    """As its management API says; RabbitMQ counts every five seconds."""


def choose(
    queues: Sequence[dict[str, Any]], pattern: re.Pattern[str] | None
) -> tuple[list[Queue], list[tuple[str, str]]]:
    """The queues that are moved, and (name, reason) of those that have messages and are not."""
    chosen: list[Queue] = []
    left: list[tuple[str, str]] = []
    for queue in sorted(queues, key=lambda queue: (queue["vhost"], queue["name"])):
        name = queue["name"]
        if pattern is not None and pattern.fullmatch(name) is None:
            continue
        reason = _reason(queue)
        if not reason:
            chosen.append(Queue(queue["vhost"], name, queue.get("messages", 0)))
        elif queue.get("messages", 0):
            left.append((name, reason))
    return chosen, left


def _reason(queue: dict[str, Any]) -> str:
    """Why a queue cannot be moved; "" = it can."""
    kind = queue.get("type") or queue.get("arguments", {}).get("x-queue-type", "classic")
    if is_session(queue["name"]):
        return "the session of an MQTT client, who subscribes again"
    if kind not in ("classic", "quorum"):
        return "a stream or a subscription; reading it removes nothing"
    if queue.get("exclusive") or queue.get("owner_pid_details") or not queue["durable"]:
        return "it ends with its connection or its broker, and no definitions have it"
    return ""
