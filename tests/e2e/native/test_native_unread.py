"""A client that asks for more than it reads: it waits, others do not, and in the end it is answered."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import urlsplit

import penstock
from penstock.testing import Gateway
from tests.reference import native_frames as wire
from tests.support.limits import LIMIT_S

TOPICS, ASKED = 100, 3000


async def test_answers_that_are_not_read_are_not_made(gateway: Gateway, client: penstock.Client) -> None:
    names = [f"{i:03}" + "x" * 200 for i in range(TOPICS)]
    for name in names:
        await client.admin.create_topic(name)
    url = urlsplit(gateway.url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        hello, login = {"versions": [1], "client": "greedy"}, {"user": "guest", "password": "guest"}
        writer.write(b"PENSTOCK" + wire.frame(0x01, 0, json.dumps(hello).encode()))
        writer.write(wire.frame(0x03, 0, json.dumps(login).encode()))
        transport: asyncio.Transport = writer.transport
        transport.pause_reading()
        # 60 MB of answers to 100 KB: more than what may wait for a peer that does not read it.
        writer.write(b"".join(wire.frame(0x05, i, b'{"do":"topics"}') for i in range(ASKED)))
        writer.write(wire.frame(0x07, ASKED, b""))
        # The other one is served meanwhile, again and again.
        for _ in range(100):
            assert len(await client.admin.topics()) == TOPICS
        transport.resume_reading()
        async with asyncio.timeout(LIMIT_S):
            answers = []
            while not answers or answers[-1] != (0x08, ASKED):
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                answers.append((frame[0], int.from_bytes(frame[4:8], "big")))
        assert answers[:2] == [(0x02, 0), (0x04, 0)]
        assert answers[2:] == [(0x06, i) for i in range(ASKED)] + [(0x08, ASKED)]
    finally:
        writer.close()
