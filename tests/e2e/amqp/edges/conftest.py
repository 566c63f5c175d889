"""A connection to either broker, and a queue of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.amqp_peer import Peer


@pytest.fixture
def peer(amqp_port: int) -> Iterator[Peer]:
    with Peer(amqp_port) as peer:
        yield peer


@pytest.fixture
def queue(peer: Peer) -> str:
    return peer.queue()
