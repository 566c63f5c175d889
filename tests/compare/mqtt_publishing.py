"""Publishes batches by MQTT with the connection that bridges are made of, and waits for all answers.

So the rate of a bridge is compared with that of its own destination end, with as many messages under way.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import uvloop

from penstock.protocols.links.mqtt.packets import connect, packet
from penstock.protocols.links.mqtt.side import Side
from penstock.protocols.links.stream import Stream
from penstock.protocols.mqtt.codec.packets import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL
from penstock.protocols.mqtt.codec.properties import encode_text
from tests.compare.publishing import Window, rate

__all__ = ["RAW_UNDER_WAY", "publish"]

RAW_UNDER_WAY: Final = 60_000
"""Nearly all packet ids."""
_ANSWER: Final = 4
"""Bytes of an answer without a reason."""


def publish(
    port: int,
    topic: str,
    count: int,
    size: int,
    *,
    qos: int,
    is_5: bool,
    clean: bool,
    under_way: int,
    batch: int = 1000,
) -> float:
    """Publish to a topic that somebody has subscribed to; how many messages a second.

    Args:
        port: On this machine.
        topic: Of all of them.
        count: Messages, in whole batches.
        size: Of each payload, in bytes.
        qos: 1 or 2.
        is_5: Whether MQTT 5 is spoken.
        clean: Whether the session ends with the connection. Those of bridges do not.
        under_way: Messages that are not answered for good, at most; whole batches.
        batch: Messages of a write.

    """
    if count % batch or under_way % batch:
        raise ValueError(f"{count} or {under_way} is not a multiple of {batch}")
    return uvloop.run(_published(port, topic, count, b"x" * size, qos, is_5, clean, under_way, batch))


async def _published(
    port: int,
    topic: str,
    count: int,
    body: bytes,
    qos: int,
    is_5: bool,
    clean: bool,
    under_way: int,
    batch: int,
) -> float:
    def one(packet_id: int) -> bytes:
        head = encode_text(topic) + packet_id.to_bytes(2, "big") + (b"\x00" if is_5 else b"")
        return packet(PUBLISH << 4 | qos << 1, head + body)

    # The ids of a batch are free again when its turn comes: not more than all are under way.
    batches = [b"".join(map(one, range(at, at + batch))) for at in range(1, under_way + 1, batch)]
    window, turn = Window(under_way, batch), 0
    stream = await Stream.connect("127.0.0.1", port)
    login = connect(
        5 if is_5 else 4,
        "bench-publisher",
        user="",
        password="",
        clean=clean,
        keepalive_s=600,
        receive_maximum=1,
        will=None,
    )
    async with await Side.open("broker", stream, login, [], is_5=is_5):

        async def send() -> None:
            nonlocal turn
            stream.write(batches[turn % len(batches)])
            turn += 1
            await stream.drain()

        async def take() -> None:
            data = await stream.read()
            whole = len(data) - len(data) % _ANSWER
            answers = np.frombuffer(data, np.uint8, whole).reshape(-1, _ANSWER).copy()
            del data
            stream.used(whole)
            kinds = answers[:, 0] >> 4
            if not np.isin(kinds, [PUBACK, PUBREC, PUBCOMP]).all() or (answers[:, 1] != 2).any():
                raise ValueError("the broker sent what is no plain answer")
            received = answers[kinds == PUBREC]
            if len(received):
                received[:, 0] = PUBREL << 4 | 2
                stream.write(received.tobytes())
            done = int((kinds != PUBREC).sum())
            window.reached(window.confirmed + done)

        return await rate(count, window, send, take)
