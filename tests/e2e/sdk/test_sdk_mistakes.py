"""Faults in a program or around it: every error names the thing and the remedy."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import Any

import pytest

import penstock
from penstock.sdk.message import properties_block
from penstock.testing import Gateway

WAIT_S = 60.0


@pytest.mark.parametrize(
    ("open_", "kind", "says"),
    [
        (lambda c: c.reader("none"), penstock.NotFound, "no topic 'none'.*; create it first"),
        (lambda c: c.producer("none", create=False), penstock.NotFound, "no topic 'none'"),
        (lambda c: c.subscribe("none", "s", create=False), penstock.NotFound, "no topic 'none'"),
        (lambda c: c.subscribe(queue="none"), penstock.NotFound, "no queue 'none'.*; declare it first"),
        (lambda c: c.producer(exchange="none"), penstock.NotFound, "no exchange 'none'"),
        (
            lambda c: c.subscribe("t", "s", kind="failover"),
            penstock.Inequivalent,
            "'t/s'.*; declare it as it is",
        ),
        (lambda c: c.subscribe("t", "u", start="soon"), penstock.Refused, "start cannot be 'soon'; it is"),
    ],
)
async def test_missing_objects_are_named(
    client: penstock.Client, open_: Any, kind: type[penstock.Refused], says: str
) -> None:
    async with client.subscribe("t", "s"):
        with pytest.raises(kind, match=says) as raised:
            await open_(client).open()
    assert (raised.value.retryable, bool(raised.value.remedy)) == (False, True)
    assert raised.value.code in ("not_found", "inequivalent", "bad_field")


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"password": "no"}, penstock.LoginRefused, "; correct the user name"),
        ({"url": "penstock://127.0.0.1:1"}, penstock.ConnectionLost, "127.0.0.1:1: .*; is it running"),
        ({"url": "penstock://no-such-host.invalid"}, penstock.ConnectionLost, "; correct the host"),
        ({"url": "penstock://h:99999"}, penstock.ClientError, "the port of 'h' is none.*; write"),
        ({"url": "amqp://h"}, penstock.ClientError, "'amqp' is no address.*; write penstock://"),
    ],
)
async def test_a_refused_login_is_told_the_reason(
    gateway: Gateway, options: dict[str, Any], kind: type[penstock.ClientError], says: str
) -> None:
    with pytest.raises(kind, match=says):
        await penstock.connect(**{"url": gateway.url, **options})
    with pytest.raises(penstock.ConnectionLost, match=r"; is this the address of native\.tls_listen"):
        await penstock.connect(gateway.url.replace("penstock:", "penstocks:"))


@pytest.mark.parametrize(
    ("said", "kind", "says"),
    [
        ({"key": 7}, TypeError, "a key is text or bytes, not int"),
        ({"headers": ["a"]}, TypeError, "not list"),
        ({"headers": {"good": 1, "bad": object()}}, TypeError, "the header 'bad' cannot be sent"),
        ({"properties": {"prio": 7}}, TypeError, "no property 'prio'.*priority"),
        ({"properties": {"priority": "high"}}, TypeError, "the property 'priority' cannot be sent"),
        ({"properties": {"message_id": "x" * 300}}, ValueError, "the property 'message_id' cannot be sent"),
    ],
)
def test_properties_that_cannot_be_are_named(said: dict[str, Any], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        properties_block(said.get("key"), said.get("headers"), None, True, said.get("properties"))


async def test_the_client_refuses_a_message_that_is_too_large_and_no_other_is_affected(
    client: penstock.Client,
) -> None:
    """The gateway drops a connection with too large a frame, and the client would send it again for ever."""
    most = (await client.link()).frame_max
    async with client.producer("t", name="p", batch_bytes=most) as producer:
        for send in (
            producer.send(bytes(most)),
            producer.send_many([b"x", bytes(most)]),
        ):
            with pytest.raises(
                penstock.Refused, match=r"; send less at once, or raise native\.max"
            ) as raised:
                await send
            assert raised.value.code == "too_large"
        with pytest.raises(penstock.Refused, match="send less"):
            async with producer.transaction() as tx:
                tx.send(bytes(most))
        # Each of these fits, and two of them do not.
        large = bytes(most * 2 // 3)
        sent = await producer.send_many([large, large])
        sent += await asyncio.gather(producer.send(large), producer.send(large))
        assert len(set(sent)) == 4
    assert (client.reconnects, producer.under_way) == (0, 0)
    assert (await client.admin.describe("t"))["messages"] == 5


async def test_a_permanent_refusal_is_not_retried(client: penstock.Client) -> None:
    (await client.link()).write(b"\0\0\0\0junk")
    with pytest.raises(penstock.Refused, match="a frame of 0 bytes"):
        while True:
            await client.admin.topics()
    assert client.reconnects == 0


async def test_cumulative_acknowledgements_need_a_consumer_that_gets_all(client: penstock.Client) -> None:
    async with client.producer("t") as producer, client.subscribe("t", "s", start="earliest") as consumer:
        await producer.send("x")
        message = await consumer.receive(WAIT_S)
        assert message is not None
        with pytest.raises(
            penstock.ClientError, match=r"shared subscription 's' of topic 't'.*; acknowledge"
        ):
            await consumer.ack_cumulative(message)
        await consumer.ack(message, durable=True)


async def test_arguments_that_are_none_are_named_at_the_call(client: penstock.Client) -> None:
    sent = penstock.MessageId(1, 1)
    wrong: Any = "orders"
    for arguments, says in (
        (("orders", 5), "id is the MessageId that send gave.*, or its delay_id, not int"),
        ((None, sent), "cancel needs one of topic and exchange"),
    ):
        with pytest.raises(TypeError, match=says):
            await client.cancel(*arguments)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="one of topic and exchange"):
        await client.cancel("t", sent, exchange="x")
    async with client.producer("t") as producer, client.subscribe("t", "s", prefetch=0) as consumer:
        tx = producer.transaction()
        with pytest.raises(TypeError, match="to is a producer that is open, not str"):
            tx.send("x", to=wrong)
        for thing in (wrong, 5, [5], [None]):
            with pytest.raises(TypeError, match="messages are settled as they were received, not"):
                tx.ack(thing)
        await tx.commit()
        for name, value, kind in (
            ("most", 0, ValueError),
            ("most", "1", TypeError),
            ("most", 1.5, ValueError),
            ("most_bytes", 2**32, ValueError),
            ("least", -1, ValueError),
            ("least_bytes", None, TypeError),
            ("wait_s", -1, ValueError),
            ("wait_s", float("nan"), ValueError),
            ("wait_s", True, TypeError),
        ):
            with pytest.raises(kind, match=f"{name} is a (whole )?number"):
                await consumer.pull(**{name: value})  # type: ignore[arg-type]
        await producer.send("x")
        (message,) = await consumer.pull(wait_s=WAIT_S)
        for delay_s, kind in (("1", TypeError), (-1, ValueError), (float("nan"), ValueError)):
            with pytest.raises(kind, match="delay_s is a number"):
                await consumer.nack(message, delay_s=delay_s)  # type: ignore[arg-type]
        await consumer.nack(message, delay_s=float("inf"))


async def test_a_transaction_takes_nothing_of_another_client(
    client: penstock.Client, gateway: Gateway
) -> None:
    """Handles are a connection's: the message went to whatever had that handle there."""
    async with (
        penstock.connect(gateway.url, connect_timeout_s=60) as other,
        other.producer("theirs") as theirs,
        other.subscribe("theirs", "s", start="earliest") as consumer,
        client.producer("mine") as mine,
    ):
        await theirs.send("x")
        message = await consumer.receive(WAIT_S)
        assert message is not None
        tx = mine.transaction()
        with pytest.raises(ValueError, match="the producer to topic 'theirs' belongs to another client"):
            tx.send("y", to=theirs)
        with pytest.raises(ValueError, match=r"the consumer of subscription 's'.* belongs to another client"):
            tx.ack(message)
        tx.send("z")
        await tx.commit()
        assert (await client.admin.describe("mine"))["messages"] == 1
        assert (await client.admin.describe("theirs"))["messages"] == 1


WORKERS = {
    "asyncio": """
import asyncio, signal, sys, penstock

async def main():
    client = penstock.connect(sys.argv[1])
    async with client, client.subscribe("t", "s", start="earliest") as consumer:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, consumer.stop)
        async def handle(message):
            print("working", flush=True)
        await consumer.workers(2, handle)
    print("ended")

asyncio.run(main())
""",
    "sync": """
import signal, sys, penstock.sync

with penstock.sync.connect(sys.argv[1]) as client, client.subscribe("t", "s", start="earliest") as consumer:
    signal.signal(signal.SIGINT, lambda *_: consumer.stop())
    for message in consumer:
        with consumer.process(message):
            print("working", flush=True)
print("ended")
""",
}


@pytest.mark.parametrize("face", WORKERS)
async def test_ctrl_c_ends_a_worker_without_a_word(
    client: penstock.Client, gateway: Gateway, face: str
) -> None:
    async with client.producer("t") as producer:
        await producer.send("x")
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKERS[face], gateway.url, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert program.stdout is not None
    assert await asyncio.wait_for(program.stdout.readline(), WAIT_S) == b"working\n"
    program.send_signal(signal.SIGINT)
    out, err = await asyncio.wait_for(program.communicate(), WAIT_S)
    assert (program.returncode, out, err) == (0, b"ended\n", b"")
    assert await client.admin.lag("t", "s") == 0
