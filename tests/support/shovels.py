"""Shovels of a gateway in tests: made over the API, fed and emptied by pika."""

from __future__ import annotations

from typing import Any

import pika

from tests.support.data_plane import until
from tests.support.management import Api

__all__ = ["Channel", "fill", "put", "state", "take", "take_from"]

Channel = pika.adapters.blocking_connection.BlockingChannel


def put(api: Api, name: str, **value: Any) -> None:
    """Make a shovel; `src_uri` is `src-uri`."""
    settings = {key.replace("_", "-"): one for key, one in value.items()}
    answer = api.send("PUT", f"parameters/shovel/%2F/{name}", {"value": settings})
    assert answer.status_code in (201, 204), answer.text


def fill(channel: Channel, queue: str, count: int, **properties: Any) -> None:
    """Publish numbers into a queue, which is made."""
    channel.queue_declare(queue, durable=True)
    for number in range(count):
        channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(**properties))


def take(channel: Channel, queue: str, count: int) -> list[tuple[Any, bytes]]:
    """So many messages of a queue, which is made if it is not there."""
    channel.queue_declare(queue, durable=True)
    return take_from(channel, queue, count)


def take_from(channel: Channel, queue: str, count: int) -> list[tuple[Any, bytes]]:
    """So many messages of a queue that is there."""
    found: list[tuple[Any, bytes]] = []

    def took() -> bool:
        while len(found) < count:
            _, properties, body = channel.basic_get(queue, auto_ack=True)
            if properties is None:
                return False
            found.append((properties, body))
        return True

    until(took)
    return found


def state(api: Api, name: str) -> dict[str, Any]:
    """A shovel as the API shows it."""
    shown: dict[str, Any] = api.get(f"shovels/vhost/%2F/{name}")
    return shown
