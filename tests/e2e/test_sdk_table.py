"""Tables: the last value of each key of a topic."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

import penstock
import penstock.sync
from penstock.testing import Gateway

WAIT_S = 60.0


@dataclasses.dataclass
class Price:
    cents: int


async def test_it_has_the_last_value_of_each_key_and_follows(client: penstock.Client) -> None:
    async with client.producer("prices", schema=Price) as producer:
        for key, cents in (("apple", 1), ("pear", 2), ("apple", 3), ("plum", 4)):
            await producer.send(Price(cents), key=key)
        await producer.send(Price(9))  # of no key: passed over
        async with client.table("prices", schema=Price) as prices, client.producer("prices") as deleting:
            assert dict(prices) == {"apple": Price(3), "pear": Price(2), "plum": Price(4)}
            assert ("apple" in prices, prices.get("kiwi"), len(prices)) == (True, None, 3)
            await deleting.send(b"", key="plum")
            await producer.send(Price(5), key=b"kiwi")
            await prices.refresh()
            assert sorted(prices) == ["apple", "kiwi", "pear"]
            with pytest.raises(KeyError):
                prices["plum"]
            assert prices.message("kiwi").value == Price(5)
            await deleting.send("no price", key="pear")
            await prices.refresh()
            with pytest.raises(penstock.BadBody, match="no Price"):
                prices["pear"]
            assert prices["apple"] == Price(3), "one bad message is one bad value"


async def test_changes_come_as_they_are_made(client: penstock.Client) -> None:
    async with client.producer("t") as producer:
        await producer.send("before", key="a")
        async with client.table("t") as table:
            changes = table.changes()
            first = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            await producer.send("1", key="a")
            assert await asyncio.wait_for(first, WAIT_S) == ("a", b"1")
            for body in (b"2", b"3", b""):
                await producer.send(body, key="a")
            await producer.send("4", key="b")
            await table.refresh()
            assert await anext(changes) == ("a", None), "the last of each key"
            assert await anext(changes) == ("b", b"4")
            ended = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(ended, WAIT_S)
        with pytest.raises(penstock.Closed, match="topic 't' is closed"):
            table["b"]


async def test_it_goes_on_after_a_lost_connection_and_a_restart(
    client: penstock.Client, gateway: Gateway
) -> None:
    async with client.producer("t") as producer:
        await producer.send("1", key="a")
        async with client.table("t") as table:
            gateway.restart()
            await producer.send("2", key="a")
            await table.refresh()
            assert dict(table) == {"a": b"2"}
            assert client.reconnects >= 1


async def test_of_a_bound_topic_the_keys_are_what_it_was_routed_by(client: penstock.Client) -> None:
    await client.admin.create_topic("states")
    await client.admin.bind("states", "amq.topic", "state.#")
    async with client.table("states") as states, client.producer(mqtt_topic="state/door") as door:
        await door.send("open")
        await door.send("shut")
        await states.refresh()
        assert dict(states) == {"state.door": b"shut"}


async def test_an_empty_topic_and_one_that_is_not_there(client: penstock.Client) -> None:
    await client.admin.create_topic("empty")
    async with client.table("empty") as table:
        assert dict(table) == {}
    with pytest.raises(penstock.NotFound, match="'none'"):
        async with client.table("none"):
            pass
    with pytest.raises(penstock.Closed, match="not open"):
        client.table("empty")["a"]


def test_the_sync_face_has_it_too(gateway: Gateway) -> None:
    with penstock.sync.connect(gateway.url) as client, client.producer("t", schema=Price) as producer:
        producer.send(Price(1), key="a")
        with client.table("t", schema=Price) as table:
            assert (table["a"].cents, len(table), "b" in table, list(table)) == (1, 1, False, ["a"])
            producer.send(Price(2), key="b")
            table.refresh()
            assert table.message("b").value == Price(2)
