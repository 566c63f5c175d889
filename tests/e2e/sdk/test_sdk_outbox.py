"""Outboxes: rows with numbers, sent again after anything, kept once."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.testing import Gateway


async def kept(client: penstock.Client) -> list[bytes]:
    count = (await client.admin.describe("t"))["messages"]
    async with client.reader("t", start="earliest") as reader:
        found: list[bytes] = []
        while len(found) < count:
            found += [one.body for one in await reader.receive_many()]
    return found


async def test_rows_are_kept_once_whatever_is_forgotten(client: penstock.Client, tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "shop.db")
    database.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB)")
    with database:
        database.executemany("INSERT INTO outbox (body) VALUES (?)", [(b"%d" % i,) for i in range(50)])
        database.execute("DELETE FROM outbox WHERE id % 7 = 0")
    wanted = [body for (body,) in database.execute("SELECT body FROM outbox ORDER BY id")]
    rows = "SELECT id, body FROM outbox ORDER BY id"
    # The first program dies behind its tenth confirm, and has deleted nothing.
    async with client.producer("t", name="shop", numbered=True) as producer:
        found = penstock.sent(producer, database.execute(rows).fetchall())
        for _ in range(10):
            await anext(found)
        await found.aclose()
    async with client.producer("t", name="shop", numbered=True) as producer:
        async for number in penstock.sent(producer, database.execute(rows).fetchall()):
            database.execute("DELETE FROM outbox WHERE id <= ?", [number])
    assert database.execute(rows).fetchall() == []
    assert await kept(client) == wanted


async def test_a_connection_that_is_lost_while_rows_are_sent_keeps_each_once(
    client: penstock.Client, gateway: Gateway
) -> None:
    async with client.producer("t", name="shop", numbered=True) as producer:
        numbers = []
        async for number in penstock.sent(producer, [(i, b"%d" % i) for i in range(0, 600, 2)], ahead=50):
            numbers.append(number)
            if number in (100, 400):
                (await client.link()).abort()
            if number == 200:
                gateway.restart()
    assert numbers == list(range(0, 600, 2))
    assert await kept(client) == [b"%d" % i for i in range(0, 600, 2)]


@pytest.mark.parametrize(
    ("bad", "kind", "says"),
    [
        ((2, "2", {"headers": {"CC": "x"}}), ValueError, "the header 'CC'"),
        ((2, 2), TypeError, "a body is bytes or text, not int"),
        ((2, "2", {"headers": {"x": object()}}), TypeError, "the header 'x'"),
    ],
)
async def test_a_row_that_cannot_be_sent_lets_none_pass(
    client: penstock.Client, bad: Any, kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        async with client.producer("t", name="shop", numbered=True) as producer:
            async for _ in penstock.sent(producer, [(1, "1"), bad, (3, "3")]):
                pass
    assert await kept(client) == [b"1"]
    async with client.producer("t", name="shop", numbered=True) as producer:
        assert [number async for number in penstock.sent(producer, [(1, "1"), (2, "2"), (3, "3")])] == [
            1,
            2,
            3,
        ]
    assert await kept(client) == [b"1", b"2", b"3"]


async def test_a_refused_row_lets_none_pass(client: penstock.Client) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    await client.admin.declare_queue("q", arguments=arguments)
    with pytest.raises(penstock.Refused, match="no room"):
        async with client.producer(queue="q", name="shop", numbered=True) as producer:
            async for _ in penstock.sent(producer, [(1, "1"), (2, "2"), (3, "3")]):
                pass
    assert await client.admin.purge_queue("q") == 1
    async with client.producer(queue="q", name="shop", numbered=True) as producer:
        assert [number async for number in penstock.sent(producer, [(1, "1"), (2, "2")])] == [1, 2]
    assert await client.admin.purge_queue("q") == 1


async def test_numbers_rise_and_are_said(client: penstock.Client) -> None:
    with pytest.raises(TypeError, match="needs a name"):
        client.producer("t", numbered=True)
    async with (
        client.producer("t", name="n", numbered=True) as numbered,
        client.producer("t", name="p") as plain,
    ):
        await numbered.send("x", number=5)
        for number in (5, 4, -1, 2**63):
            with pytest.raises(ValueError, match="numbers rise"):
                await numbered.send("x", number=number)
        with pytest.raises(TypeError, match="say number="):
            await numbered.send("x")
        with pytest.raises(TypeError, match="say number="):
            await numbered.send_many([b"x"])
        with pytest.raises(TypeError, match="numbered=True"):
            await plain.send("x", number=1)
    assert await kept(client) == [b"x"]
