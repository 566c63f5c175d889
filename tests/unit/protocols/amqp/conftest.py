"""A broker and connections to it, without sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.amqp_session import Client, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture
def client(world: World) -> Client:
    """A connection with channel 1 open."""
    return world.client()
