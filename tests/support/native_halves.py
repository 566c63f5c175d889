"""Producers of half messages over the native protocol, and what they are asked."""

from __future__ import annotations

from typing import Any

from penstock.protocols.native.codec import kinds
from tests.reference import native_frames as wire
from tests.support.native_session import Client, World


def producer(
    world: World, *, user: str = "guest", group: str = "g", topic: str = "t", **rules: Any
) -> Client:
    client = Client(world, user=user)
    told = client.request(
        "open_producer", handle=1, topic=topic, create=user == "guest", group=group, **rules
    )
    assert told == {"handle": 1, "epoch": 0}, told
    return client


def questions(client: Client) -> list[tuple[int, int, bytes]]:
    """(transaction, checks, body) of what it was asked."""
    found = []
    for kind, handle, payload in client.take():
        assert (kind, handle) == (kinds.CHECK, 1)
        transaction, checks, _, body = wire.check(payload)
        found.append((transaction, checks, body))
    return found
