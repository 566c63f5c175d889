"""A broker and a connection to it, without sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.amqp10_session import Peer
from tests.support.amqp_session import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture
def peer(world: World) -> Peer:
    """A connection with a session, and the queue "q"."""
    made = Peer(world)
    made.declare("q")
    return made
