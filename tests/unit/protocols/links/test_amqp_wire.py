"""Frames that a link of AMQP 0-9-1 writes without pamqp are those that pamqp reads."""

from __future__ import annotations

import asyncio
import socket

import pamqp.frame
from pamqp import commands

from penstock.protocols.links.amqp.wire import CHANNEL, Connection
from penstock.protocols.links.stream import Stream


def test_acknowledgements_are_those_of_pamqp() -> None:
    tags = [(1, False), (2**63 - 1, True), (300, False)]

    async def written() -> bytes:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        _, stream = await asyncio.get_running_loop().create_unix_connection(Stream, sock=ours)
        Connection(stream).acknowledge(tags)
        found = await asyncio.get_running_loop().sock_recv(theirs, 4096)
        await stream.close()
        theirs.close()
        return found

    acks = [commands.Basic.Ack(tag, multiple) for tag, multiple in tags]
    assert asyncio.run(written()) == b"".join(pamqp.frame.marshal(ack, CHANNEL) for ack in acks)
