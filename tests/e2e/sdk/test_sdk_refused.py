"""A named producer's messages after one before them is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

import penstock
from penstock.protocols.properties.properties import encode_properties
from penstock.sdk.errors import Refused
from tests.support.limits import LIMIT_S


async def sent(producer: penstock.Producer[Any], messages: Iterable[tuple[str, dict[str, Any]]]) -> list[str]:
    """Send all at once, each as a batch of its own: "kept" or the code of the refusal, of each.

    Past what the client looks at, which would send no message with headers of the gateway's own.
    """
    blocks = [(body, encode_properties({"headers": headers})) for body, headers in messages]
    sending = [producer._add(body.encode(), block, None) for body, block in blocks]
    found = []
    for one in sending:
        try:
            await asyncio.wait_for(one, LIMIT_S)
            found.append("kept")
        except Refused as error:
            found.append(error.code)
    return found


@pytest.mark.parametrize("name", [None, "p"])
async def test_messages_sent_behind_a_refused_one_are_kept(client: penstock.Client, name: str | None) -> None:
    bad = {"x-mqtt-retain": True}
    async with client.producer("t", name=name, batch_messages=1) as producer:
        told = await sent(producer, [("a", {}), ("no", bad), ("b", {}), ("never", bad), ("c", {})])
        assert told == ["kept", "reserved_header", "kept", "reserved_header", "kept"]
        assert await sent(producer, [("d", {})]) == ["kept"]
    got: list[bytes] = []
    async with client.reader("t", start="earliest") as reader:
        while len(got) < 4:
            message = await reader.receive(LIMIT_S)
            assert message is not None
            got.append(message.body)
    assert got == [b"a", b"b", b"c", b"d"]


async def test_a_producer_goes_on_when_a_full_queue_has_room_again(client: penstock.Client) -> None:
    arguments = {"x-max-length": 2, "x-overflow": "reject-publish"}
    await client.call("declare_queue", queue="q", arguments=arguments)
    async with client.producer(queue="q", name="p", batch_messages=1) as producer:
        assert await sent(producer, [(str(at), {}) for at in range(5)]) == ["kept"] * 2 + ["full"] * 3
        await client.call("purge_queue", queue="q")
        assert await sent(producer, [("5", {}), ("6", {})]) == ["kept"] * 2
        assert (await client.call("purge_queue", queue="q"))["messages"] == 2
        assert await sent(producer, [("7", {})]) == ["kept"]
    assert (await client.call("purge_queue", queue="q"))["messages"] == 1
