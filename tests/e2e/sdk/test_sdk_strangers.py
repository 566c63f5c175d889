"""A server that is no gateway: the client reports it at once, with the bytes that it received."""

from __future__ import annotations

import asyncio
import re
import time

import pytest

import penstock
from penstock.testing import Gateway

SAYS = {
    "Redis": b"-ERR unknown command 'PENSTOCK'\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a byte": b"A",
    "zeros": bytes(64),
    "another frame": b"\0\0\0\x08\x06\0\0\0\0\0\0\0",
    "half of a frame that is too large": b"\0\1",
}


@pytest.mark.parametrize("what", SAYS)
async def test_a_peer_that_is_no_gateway_is_reported_at_once(what: str) -> None:
    heard = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(SAYS[what])
        await writer.drain()
        while await reader.read(65536):  # it does not close by itself
            pass
        writer.close()
        heard.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    began = time.monotonic()
    says = rf"127.0.0.1:{port} begins with {re.escape(repr(SAYS[what][:16]))} and did not say that it is a"
    with pytest.raises(penstock.ConnectionLost, match=says + r".*; is this the address of native\.listen\?"):
        await penstock.connect(f"penstock://127.0.0.1:{port}", connect_timeout_s=600)
    assert time.monotonic() - began < 300
    await heard.wait()
    server.close()
    await server.wait_closed()


async def test_the_other_listeners_of_a_gateway_are_no_native_ones(gateway: Gateway) -> None:
    amqp = int(gateway.amqp_url.rpartition(":")[2].strip("/"))
    with pytest.raises(
        penstock.ConnectionLost, match=r"begins with b'AMQP.*TLS, AMQP, MQTT and HTTP have others"
    ):
        await penstock.connect(f"penstock://127.0.0.1:{amqp}")
