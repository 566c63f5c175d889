"""Memory: a broker that is closed goes, though its routes lie where the garbage collector does not look."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

from pamqp import commands

from tests.support.amqp_session import Client, World


def declare_and_publish(client: Client) -> None:
    client.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    client.publish("", "q", b"m")
    client.read()


def test_a_broker_that_is_closed_is_garbage(tmp_path: Path) -> None:
    world = World(tmp_path)
    declare_and_publish(world.client())
    broker = weakref.ref(world.broker)
    world.close()
    del world
    gc.collect()
    assert broker() is None
