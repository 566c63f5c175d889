"""The SDK says of each message whether a queue or subscription gets it; `mandatory` raises if none does."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import penstock
import penstock.sync
from penstock.protocols.native.codec import kinds
from penstock.testing import Gateway

THROUGH: dict[str, Any] = {"exchange": "amq.topic", "routing_key": "a.b"}


async def test_each_id_says_whether_the_message_goes_somewhere(client: penstock.Client) -> None:
    async with client.producer(**THROUGH) as producer, client.producer("topic") as topic:
        nowhere = await producer.send("lost")
        assert nowhere.routed is False and pickle.loads(pickle.dumps(nowhere)).routed is False
        assert [one.routed for one in await producer.send_many([b"1", b"2"])] == [False, False]
        assert (await topic.send("kept")).routed is True
        assert (await producer.send("later", deliver_after_s=60)).routed is None
        await client.admin.declare_queue("q")
        await client.admin.bind("q", "amq.topic", "a.*")
        assert (await producer.send("kept")).routed is True
    async with client.producer(**THROUGH, acks="none") as unconfirmed:
        assert (await unconfirmed.send("nobody says")).routed is None
    assert (await client.admin.describe_queue("q"))["ready"] == 2


async def test_a_mandatory_message_raises_by_name(client: penstock.Client) -> None:
    wanted = "no queue and no subscription gets what is sent to exchange 'amq.topic', key 'a.b'"
    async with client.producer(**THROUGH, mandatory=True) as producer:
        with pytest.raises(penstock.Unroutable, match=wanted) as raised:
            await producer.send("lost")
        assert (raised.value.code, raised.value.retryable) == ("unroutable", False)
        assert "bind a queue" in raised.value.remedy
        with pytest.raises(penstock.Unroutable):
            await producer.send_many([b"1", b"2"])
        sent = producer.send_nowait("lost")
        await producer.flush()
        assert isinstance(sent.exception(), penstock.Unroutable)
        await client.admin.declare_queue("q")
        await client.admin.bind("q", "amq.topic", "a.*")
        assert (await producer.send("kept")).routed and (await producer.send_nowait("kept")).routed


async def test_of_an_exchange_that_reads_headers_each_message_counts(client: penstock.Client) -> None:
    await client.admin.declare_queue("q")
    await client.admin.bind("q", "amq.headers", arguments={"kind": "wanted"})
    async with client.producer(exchange="amq.headers", linger_ms=60_000, mandatory=True) as producer:
        sent = [producer.send_nowait("m", headers={"kind": kind}) for kind in ("wanted", "not", "wanted")]
        await producer.flush()
        assert [type(one.exception()) for one in sent] == [type(None), penstock.Unroutable, type(None)]
        assert sent[0].result().routed and sent[2].result().position == sent[0].result().position + 2


async def test_mandatory_is_refused_where_nobody_can_say(
    client: penstock.Client, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="leave out mandatory"):
        client.producer(**THROUGH, mandatory=True, acks="none")
    async with client.producer(**THROUGH, mandatory=True) as producer:
        with pytest.raises(penstock.ClientError, match="when a delayed message is due"):
            await producer.send("later", deliver_after_s=60)
        with pytest.raises(penstock.ClientError, match="when a transaction is committed"):
            producer.transaction().send("together")
        with pytest.raises(penstock.ClientError, match="when a half message is committed"):
            await producer.prepare("half")
    # To this client it is a gateway without the capability.
    monkeypatch.setattr(kinds, "ROUTED", "routed in another way")
    async with penstock.connect(gateway.url) as stranger:
        async with stranger.producer(**THROUGH) as producer:
            assert (await producer.send("lost")).routed is None
        with pytest.raises(penstock.ClientError, match="does not say whether a queue gets a message"):
            await stranger.producer(**THROUGH, mandatory=True).open()


def test_without_asyncio_it_is_the_same(gateway: Gateway) -> None:
    with penstock.sync.connect(gateway.url) as client:
        with client.producer(**THROUGH) as producer:
            assert producer.send("lost").routed is False
            assert producer.send_nowait("lost").result().routed is False
        with client.producer(**THROUGH, mandatory=True) as producer, pytest.raises(penstock.Unroutable):
            producer.send("lost")
