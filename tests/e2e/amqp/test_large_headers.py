"""Content headers beyond the frame_max that a consumer agreed on: sent whole, as RabbitMQ sends them.

A content header cannot be cut, so whoever asks for frames smaller than the publishers' either takes what is
larger all the same, or ends the connection. Nothing else gives the message to those who can take it.
"""

from __future__ import annotations

import struct

from pamqp import commands

from tests.support.amqp_client import Connection

FRAME_MAX = 4096


def frames(connection: Connection, count: int) -> list[tuple[int, bytes]]:
    """The type and payload of the next frames, as they come."""
    found = []
    for _ in range(count):
        kind, _, size = struct.unpack(">BHI", connection.read_exactly(7))
        payload = connection.read_exactly(size)
        assert connection.read_exactly(1) == b"\xce"
        found.append((kind, payload))
    return found


def test_a_header_that_does_not_fit_comes_whole_and_bodies_are_cut(amqp_port: int, unique: str) -> None:
    small = Connection(amqp_port, until="tune")
    small.send(0, commands.Connection.TuneOk(2047, FRAME_MAX, 0))
    small.call(0, commands.Connection.Open("/"))
    with small, Connection(amqp_port) as large:
        for connection in (small, large):
            connection.channel()
        large.call(1, commands.Queue.Declare(queue=unique, durable=True))
        sizes = (100, FRAME_MAX, 100_000)
        for size in sizes:
            properties = commands.Basic.Properties(headers={"large": "x" * size})
            large.publish(1, "", unique, b"b" * 5000, properties=properties)
        large.sync(1)
        small.call(1, commands.Basic.Consume(queue=unique, consumer_tag="c", no_ack=False))
        for size in sizes:
            (method, _), (header, props), *bodies = frames(small, 4)
            assert (method, header) == (1, 2)
            assert b"x" * size in props and (len(props) + 8 > FRAME_MAX) == (size >= FRAME_MAX)
            cut = [(3, FRAME_MAX - 8), (3, 5000 - FRAME_MAX + 8)]
            assert [(kind, len(body)) for kind, body in bodies] == cut
        small.send(1, commands.Basic.Ack(3, multiple=True))
        small.sync(1)
        left = large.call(1, commands.Queue.Delete(queue=unique))
        assert isinstance(left, commands.Queue.DeleteOk) and left.message_count == 0
