"""A tail's queue consumer: bounded, and honest about what it dropped."""

from __future__ import annotations

from pathlib import Path

from penstock.log_core.batch._batch import AMQP091
from penstock.protocols.http.data.live.tail import Tail
from penstock.router.authorization.identity import BROKER, Actor
from penstock.router.names import join_key_block
from tests.support.amqp_session import World


def test_a_tail_keeps_a_megabyte_and_counts_what_it_drops(tmp_path: Path) -> None:
    world = World(tmp_path)
    try:
        vhost = world.broker.vhost("/")
        queue = vhost.declare_queue("t", Actor(BROKER, object()), exclusive=False).queue
        tail = Tail(queue, lambda: None)
        queue.attach(tail)
        for _ in range(30):
            vhost.publish(None, AMQP091, join_key_block("", "t"), b"\0\0", b"x" * 100_000)
            world.turn()
        assert (len(tail.pending), tail.skipped) == (11, 19)
        assert queue.ready_count == 0 and queue.cursor.outstanding == 0, "it slows nobody"
        while tail.take() is not None:
            pass
        vhost.publish(None, AMQP091, join_key_block("", "t"), b"\0\0", b"again")
        world.turn()
        taken = tail.take()
        assert taken is not None and taken.record.body == b"again"
    finally:
        world.close()
