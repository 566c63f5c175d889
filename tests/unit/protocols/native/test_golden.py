"""The frames in tests/golden/native-frames.json: both sides' kernels make and understand exactly these."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.protocols.native.codec import kinds
from penstock.protocols.native.codec._gathering import Gathering
from penstock.protocols.native.codec._inbox import Inbox
from penstock.protocols.native.codec._records import encode_records
from penstock.protocols.native.codec.packing import unpack
from penstock.sdk.message import Message, properties_block
from penstock.sdk.producing.half import Question
from tests.reference import native_frames as wire
from tests.support.native_golden import FRAMES
from tests.support.native_session import PLAIN, Client, World

KINDS = {
    value: name
    for name, value in vars(kinds).items()
    if isinstance(value, int) and name.isupper() and not name.startswith("ACKS") and not name.endswith("_MAX")
}


def test_the_client_makes_the_produce_frame() -> None:
    props = [PLAIN, properties_block("k", None, None, True), PLAIN]
    gathering = Gathering(PLAIN, 1000, 10, 1000)
    for body, block in zip([b"a", b"bc", b""], props, strict=True):
        gathering.add(body, block)
    batch = gathering.take()
    assert batch is not None
    batch.seal(1, 0, 2)
    assert batch.frame == FRAMES["produce"]


def test_a_client_s_records_are_the_reference_s() -> None:
    items = [(PLAIN, b"x" * i) for i in range(20)]
    bodies = [body for _, body in items]
    assert encode_records(bodies, [PLAIN] * 20) == wire.records(items)
    with pytest.raises(ValueError, match="20 bodies and 1 properties"):
        encode_records(bodies, [PLAIN])


def taken(payload: bytes) -> list[Message]:
    """The messages that a client reads from a DELIVER frame that answers no pull."""
    inbox = Inbox(Message, None, 100, 1 << 20)
    assert inbox.deliver(payload) == (0, ())
    return inbox.take(100)


def test_the_client_understands_the_delivery() -> None:
    ((_, handle, payload),) = wire.frames(FRAMES["deliver"])
    (message,) = taken(payload)
    assert handle == 2
    assert (message.position, message.timestamp_ms, message.tag) == (4711, 1_700_000_000_123, 7)
    assert (message.body, message.given_back, message.redelivered) == (b"hello", 2, True)
    assert (message.exchange, message.routing_key, message.key, message.headers) == ("", "orders", None, {})


def test_a_delivery_that_is_cut_anywhere_is_refused() -> None:
    ((_, _, payload),) = wire.frames(FRAMES["deliver"])
    for cut in range(len(payload)):
        with pytest.raises(ValueError, match="cut short"):
            taken(payload[:cut])
    with pytest.raises(ValueError, match="left over"):
        taken(payload + b"x")


def test_the_gateway_understands_what_a_client_sends(world: World) -> None:
    client = Client(world, login=False)
    client.send(b"PENSTOCK" + FRAMES["hello"] + FRAMES["login"])
    client.log_in()
    client.send(FRAMES["open_producer"] + FRAMES["produce"] + FRAMES["produce_at"] + FRAMES["ping"])
    assert sorted(kind for kind, _, _ in client.take()) == [0x02, 0x04, 0x06, 0x08, 0x12, 0x12]
    subscribed: dict[str, Any] = {"topic": "orders", "subscription": "s", "kind": "exclusive"}
    client.request("subscribe", handle=2, start="earliest", **subscribed)
    client.send(FRAMES["credit"])
    assert client.bodies() == [b"a", b"bc", b""]
    client.send(FRAMES["produce_packed"])
    assert client.bodies() == [b"compressed " * 8]
    assert [kind for kind, _, _ in client.take()] == [0x12]
    client.send(FRAMES["nack"] + FRAMES["reject"] + FRAMES["ack"] + FRAMES["ack_cumulative"] + FRAMES["pull"])
    found = client.take()
    assert [(kind, id) for kind, id, _ in found] == [(0x06, 9)]
    assert client.session.running


def test_half_messages_are_prepared_and_asked_about(world: World) -> None:
    client = Client(world)
    client.request("create_topic", topic="orders")
    client.send(FRAMES["open_group"] + FRAMES["prepare"])
    assert [id for kind, id, _ in client.take() if kind == 0x06] == [11, 12]
    world.pass_time(6.1)
    ((kind, handle, payload),) = client.take()
    assert (kind, handle, payload[8:]) == (0x27, 4, bytes(3) + b"\x01" + FRAMES["check"][24:])
    asked = Question.decode(FRAMES["check"][12:])
    assert (asked.transaction, asked.checks, asked.body, asked.key) == (4711, 2, b"half", None)


def test_the_gateway_makes_confirms_like_the_golden_one(world: World) -> None:
    client = Client(world)
    codec = client.session.codec
    for tells_routed, name in ((False, "confirm"), (True, "confirm_unrouted")):
        codec.tells_routed = tells_routed
        codec.expect(1, 0, 3, 4711, 4713, True, False)
        codec.confirm(4713, 4713)
        assert client.out.take() == FRAMES[name]


def test_there_is_one_of_every_type_of_frame() -> None:
    assert {frame[4] for frame in FRAMES.values()} == set(KINDS)


def test_the_client_understands_stored_batches() -> None:
    ((_, handle, payload),) = wire.frames(FRAMES["deliver_stored"])
    inbox = Inbox(Message, None, 100, 1 << 20)
    inbox.deliver_stored(payload)
    messages = inbox.take(100)
    assert (handle, [message.tag for message in messages]) == (2, [7, 8, 9])
    assert [message.position for message in messages] == [4711, 4712, 4713]
    assert [message.timestamp_ms - 1_700_000_000_000 for message in messages] == [0, 1, 0]
    assert [(message.routing_key, message.body) for message in messages] == [
        ("orders", b"hello"),
        ("orders", b"world"),
        ("orders", b"!"),
    ]
    _, _, said = wire.deliver_stored(payload)
    assert [(one["position"], one["body"]) for one in said] == [(m.position, m.body) for m in messages]


def test_the_client_understands_a_packed_delivery() -> None:
    ((_, _, payload),) = wire.frames(FRAMES["deliver_packed"])
    messages = taken(unpack(payload, 1000))
    assert [(message.tag, message.body) for message in messages] == [(7 + i, b"compressed") for i in range(8)]


@pytest.mark.parametrize("name", ["welcome", "ready", "response", "error", "refused", "event"])
def test_answers_of_the_gateway_have_these_fields(world: World, name: str) -> None:
    client = Client(world, login=False)
    client.send(b"PENSTOCK" + FRAMES["hello"] + FRAMES["login"])
    client.log_in()
    client.send(client.json_frame(0x05, {"do": "describe", "topic": "none"}, 7))
    client.send(FRAMES["open_producer"] + FRAMES["produce"])
    client.request("subscribe", handle=2, topic="orders", subscription="s")
    client.request("seek", topic="orders", subscription="s", to="earliest")
    client.request("delete_topic", topic="orders")
    client.send(FRAMES["produce"])
    ((kind, _, golden),) = wire.frames(FRAMES[name])
    told = [json.loads(payload) for found, _, payload in client.frames if found == kind]
    assert json.loads(golden).keys() in [one.keys() for one in told]


def test_the_gateway_understands_requests_as_they_are_written_down(world: World) -> None:
    client = Client(world)
    opened = client.request("open_producer", handle=1, topic="orders", create=True, name="shop")
    assert opened["epoch"] == 1
    client.send(FRAMES["resume_producer"] + FRAMES["subscribe_sticky"] + FRAMES["seek"] + FRAMES["cancel"])
    told = {id: json.loads(payload) for kind, id, payload in client.take() if kind == 0x06}
    assert told[28] == {"handle": 8, "epoch": 1}
    assert told[25] == {"handle": 7}
    assert told[26] == {"position": 4711}
    assert told[27] == {"cancelled": False}
    client.request("close", handle=1)
    client.request("open_producer", handle=1, topic="orders")
    world.clock.now = 1_700_000_000.0  # before the message is due
    client.send(FRAMES["produce_at_named"])
    assert [kind for kind, _, _ in client.take()] == [0x12]
    client.send(FRAMES["cancel_named"])
    ((_, id, payload),) = client.take()
    assert (id, json.loads(payload)) == (29, {"cancelled": True})
    client.send(wire.credit(7, 10, 1 << 20))
    client.request("open_producer", handle=2, topic="orders")
    items = [(properties_block(key, None, None, True), key.encode()) for key in ("k1", "ann")]
    client.send(wire.produce(2, 0, 2, items))
    assert client.bodies() == [b"ann"]
