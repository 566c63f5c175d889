"""Transactions of native clients without sockets: all of it, or nothing."""

from __future__ import annotations

import json

import pytest

from tests.reference import native_frames as wire
from tests.support.native_session import PLAIN, World, opened, read_all


def test_a_transaction_publishes_and_acknowledges_as_one(world: World) -> None:
    client = opened(world)
    client.request("open_producer", handle=2, topic="u", create=True)
    client.request("subscribe", handle=3, topic="t", subscription="s")
    client.send(wire.credit(3, 10, 1000))
    client.produce(1, b"in")
    assert client.bodies() == [b"in"]
    client.take()
    data = wire.transact(50, [(1, [(PLAIN, b"x"), (PLAIN, b"y")]), (2, [(PLAIN, b"z")])], [(3, [(1, 1)])])
    client.send(data)
    answers = [one for one in client.take() if one[0] == 0x06]
    assert [id for _, id, _ in answers] == [50]
    assert len(json.loads(answers[0][2])["positions"]) == 2
    assert read_all(client) == [b"in", b"x", b"y"]
    described = client.request("describe", topic="t")["subscriptions"]["s"]
    assert (described["unacked"], described["acknowledged"]) == (2, 1)


@pytest.mark.parametrize("wrong", ["producer", "consumer", "stale", "records", "cut"])
def test_a_transaction_that_cannot_be_done_does_nothing(world: World, wrong: str) -> None:
    client = opened(world)
    client.request("subscribe", handle=3, topic="t", subscription="s")
    client.send(wire.credit(3, 10, 1000))
    client.produce(1, b"in")
    client.take()
    batches = [(1, [(PLAIN, b"x")]), (9 if wrong == "producer" else 1, [(PLAIN, b"y")])]
    if wrong == "records":
        batches[1] = (1, [(b"\x01\x00\x03abc", b"y")])
    settled = [(9 if wrong == "consumer" else 3, [(1, 2 if wrong == "stale" else 1)])]
    data = wire.transact(50, batches, settled)
    if wrong == "cut":
        data = wire.frame(0x14, 50, data[12:-3])
    client.send(data)
    ((kind, id, _),) = client.take()
    assert (kind, id) == (0x0F, 50)
    assert read_all(client) == [b"in"]
    assert client.request("describe", topic="t")["subscriptions"]["s"]["unacked"] == 1
