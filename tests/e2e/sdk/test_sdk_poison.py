"""A message that the gateway would refuse is told at its own call: others of its batch are kept.

The gateway refuses a batch whole; those that share one are often of tasks that know nothing of one another.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import pytest

import penstock
from penstock.sdk.message import PROPERTIES_MAX, properties_block

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "CC": ({"headers": {"CC": ["q"]}}, "the header 'CC' is the gateway's own"),
    "BCC": ({"headers": {"BCC": ["q"]}}, "the header 'BCC' is the gateway's own"),
    "ours": ({"headers": {"x-penstock-due": 1}}, "the header 'x-penstock-due' is the gateway's own"),
    "retained": ({"headers": {"x-mqtt-retain": True}}, "the header 'x-mqtt-retain' is the gateway's own"),
    "direct reply": ({"reply_to": "amq.rabbitmq.reply-to"}, "'reply_to' cannot be amq.rabbitmq.reply-to"),
    "expiration": ({"expiration": "soon"}, "'expiration' is no number of ms: 'soon'; say ttl_s"),
    "large header": ({"headers": {"a": "x" * PROPERTIES_MAX}}, "131,052 are taken; send more in the body"),
    "large key": ({"key": "x" * PROPERTIES_MAX}, "131,052 are taken; send more in the body"),
    "user": ({"user_id": "ann"}, "user_id is 'guest', who is logged in, or left out"),
    "too long": ({"ttl_s": float("inf")}, "ttl_s is a number from 0 to 4,294,967"),
    "never": ({"ttl_s": -1}, "ttl_s is a number from 0"),
}


async def test_a_refused_message_does_not_affect_others_of_its_batch(client: penstock.Client) -> None:
    async with client.producer("t", linger_ms=60_000) as producer:
        for what, (said, says) in REFUSED.items():
            before = producer.send_nowait(b"before")
            for send in (producer.send, producer.send_nowait):
                with pytest.raises(ValueError, match=re.escape(says)):
                    await asyncio.ensure_future(send(b"x", **said))
            behind = producer.send_nowait(b"behind")
            await producer.flush()
            assert (await behind).position == (await before).position + 1, what


async def test_a_transaction_reports_a_refused_message_too(client: penstock.Client) -> None:
    async with client.producer("t") as producer:
        for said, says in REFUSED.values():
            named = {name: said[name] for name in ("key", "headers", "ttl_s") if name in said}
            rest = {name: value for name, value in said.items() if name not in named}
            with pytest.raises(ValueError, match=re.escape(says)):
                async with producer.transaction() as tx:
                    tx.send(b"x", properties=rest, **named)
        assert (await client.admin.describe("t"))["messages"] == 0


def block_of(said: Mapping[str, Any]) -> bytes:
    return properties_block(said.get("key"), said.get("headers"), None, True)


async def test_the_gateway_accepts_the_largest_message_that_the_client_accepts(
    client: penstock.Client,
) -> None:
    spare = PROPERTIES_MAX - len(block_of({"headers": {"a": ""}}))
    fits = {"a": "x" * spare}
    assert len(block_of({"headers": fits})) == PROPERTIES_MAX
    async with client.producer("t") as producer:
        await producer.send(b"x", headers=fits)
        await producer.send(b"x", user_id="guest", ttl_s=4_294_967)
        # The gateway refuses a message that the client does not check: both use the same limit.
        with pytest.raises(penstock.Refused, match="131,052 bytes"):
            await producer._add(b"x", b"\x20\x00" + one_larger(fits), None)


def one_larger(headers: dict[str, str]) -> bytes:
    """A table of AMQP with one byte more than fits; its flags say that it is all there is."""
    name, value = next(iter(headers.items()))
    # Without the delivery mode, which has a byte: two more.
    text = (value + "xx").encode()
    entry = bytes([len(name)]) + name.encode() + b"S" + len(text).to_bytes(4, "big") + text
    return len(entry).to_bytes(4, "big") + entry


TIMES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"deliver_at": float("nan")}, ValueError, "deliver_at is a number"),
    ({"deliver_at": float("inf")}, ValueError, "deliver_at is a number"),
    ({"deliver_after_s": float("nan")}, ValueError, "deliver_after_s is a number"),
    ({"deliver_after_s": float("inf")}, ValueError, "deliver_after_s is a number"),
    ({"deliver_after_s": True}, TypeError, "deliver_after_s is a number, not bool"),
    ({"ttl_s": float("nan")}, ValueError, "ttl_s is a number"),
    ({"delivery_mode": 1}, TypeError, "delivery_mode is said by persistent"),
]


async def test_times_that_are_none_are_named(client: penstock.Client) -> None:
    async with client.producer("t") as producer:
        for said, kind, says in TIMES:
            for send in (producer.send, producer.send_nowait):
                with pytest.raises(kind, match=says):
                    await asyncio.ensure_future(send(b"x", **said))
        assert (await client.admin.describe("t"))["messages"] == 0


async def test_a_text_is_one_message(client: penstock.Client) -> None:
    async with client.producer("t") as producer:
        for body in ("abc", b"abc"):
            with pytest.raises(TypeError, match="send_many sends a list of messages; a message of"):
                await producer.send_many(body)  # type: ignore[arg-type]
