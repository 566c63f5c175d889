"""Producers and consumers of one topic and subscription over the native protocol, without sockets."""

from __future__ import annotations

from typing import Any

from tests.reference import native_frames as wire
from tests.support.native_session import Client, World


def producer(world: World) -> Client:
    client = Client(world)
    client.request("open_producer", handle=1, topic="t", create=True)
    return client


def consumer(world: World, kind: str, name: str, credit: int = 1000, **more: Any) -> Client:
    client = Client(world)
    fields = {"topic": "t", "subscription": "s", "start": "earliest", "create": True, **more}
    told = client.request("subscribe", handle=7, kind=kind, consumer=name, **fields)
    assert told == {"handle": 7}, told
    if credit:
        client.send(wire.credit(7, credit, 1 << 20))
    return client


def keys_at(client: Client) -> dict[bytes, list[bytes]]:
    """The bodies that came, by key; a body is KEY:NUMBER."""
    found: dict[bytes, list[bytes]] = {}
    for body in client.bodies():
        found.setdefault(body.partition(b":")[0], []).append(body)
    return found
