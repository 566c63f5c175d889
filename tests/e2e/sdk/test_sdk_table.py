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
    with (
        penstock.sync.connect(gateway.url, connect_timeout_s=WAIT_S) as client,
        client.producer("t", schema=Price) as producer,
    ):
        producer.send(Price(1), key="a")
        with client.table("t", schema=Price) as table:
            assert (table["a"].cents, len(table), "b" in table, list(table)) == (1, 1, False, ["a"])
            producer.send(Price(2), key="b")
            table.refresh()
            assert table.message("b").value == Price(2)


# Going on from what was saved


async def test_a_table_goes_on_from_what_was_saved(client: penstock.Client) -> None:
    async with client.producer("prices", schema=Price) as producer, client.producer("prices") as deleting:
        for key, cents in (("apple", 1), ("pear", 2), ("apple", 3), ("plum", 4)):
            await producer.send(Price(cents), key=key, headers={"n": cents})
        async with client.table("prices", schema=Price) as table:
            saved = table.saved()
        await producer.send(Price(5), key="pear")
        await deleting.send(b"", key="plum")
        again = client.table("prices", schema=Price, saved=saved)
        read: list[bytes] = []
        put = again._put

        def seen(message: penstock.Message[Price]) -> None:
            read.append(message.body)
            put(message)

        again._put = seen  # type: ignore[method-assign]
        for _ in range(2):  # it may be closed and opened
            async with again:
                assert dict(again) == {"apple": Price(3), "pear": Price(5)}
                assert again.message("apple").headers["n"] == 3
                assert again.message("apple").position < again.message("pear").position
                twice = again.saved()
        # The saved rows and the later ones, without the topic's earlier records.
        assert len(read) == 2 * (3 + 2)
        async with client.table("prices", schema=Price, saved=twice) as table:
            await producer.send(Price(6), key="apple")
            await table.refresh()
            assert dict(table) == {"apple": Price(6), "pear": Price(5)}


async def test_an_empty_table_is_saved_as_well(client: penstock.Client) -> None:
    await client.admin.create_topic("t")
    async with client.table("t") as table:
        saved = table.saved()
    async with client.producer("t") as producer, client.table("t", saved=saved) as table:
        await producer.send("1", key="a")
        await table.refresh()
        assert dict(table) == {"a": b"1"}


async def test_a_state_saved_by_another_table_is_refused(client: penstock.Client) -> None:
    async with client.producer("t") as producer:
        await producer.send_many(["1"] * 100, key="a")
        async with client.table("t") as table:
            saved = table.saved()
    for broken, why in (
        (b"", "was not made by a table"),
        (b"x" * 100, "was not made by a table"),
        (saved[:-1], "damaged"),
        (saved[:30] + bytes([saved[30] ^ 1]) + saved[31:], "damaged"),
    ):
        with pytest.raises(ValueError, match=why):
            client.table("t", saved=broken)
    with pytest.raises(ValueError, match="of topic 't', not 'u'"):
        client.table("u", saved=saved)
    with Gateway() as other:
        async with (
            penstock.connect(other.url, connect_timeout_s=WAIT_S) as there,
            there.producer("t") as producer,
        ):
            await producer.send("1", key="a")
            with pytest.raises(penstock.ClientError, match="what was saved goes to"):
                await there.table("t", saved=saved).open()


def test_without_asyncio_it_is_saved_as_well(gateway: Gateway) -> None:
    with (
        penstock.sync.connect(gateway.url, connect_timeout_s=WAIT_S) as client,
        client.producer("t") as producer,
    ):
        producer.send("1", key="a")
        with client.table("t") as table:
            saved = table.saved()
        with client.table("t", saved=saved) as table:
            assert dict(table) == {"a": b"1"}
