"""The kernel that makes publishes of deliveries, against plain Python, over bytes cut anywhere."""

from __future__ import annotations

import contextlib

import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat

from penstock.protocols.links.amqp._header_edit import HeaderEdit
from penstock.protocols.links.amqp._relay import Relay
from penstock.protocols.links.amqp.header import short_string

_NAMES = st.text("abc", max_size=3)
_BODIES = st.lists(st.binary(min_size=1, max_size=9), max_size=2)
_MESSAGES = st.tuples(
    _NAMES,
    _NAMES,
    _NAMES,
    st.booleans(),
    st.integers(1, 5),
    st.lists(st.binary(min_size=1, max_size=9), max_size=2),
)
_OTHER = pamqp.frame.marshal(commands.Queue.DeclareOk("q", 1, 2), 1)


def header_of(hops: list[bool | None], bodies: list[bytes]) -> bytes:
    properties = commands.Basic.Properties(headers={"hops": hops})
    return pamqp.frame.marshal(ContentHeader(0, sum(map(len, bodies)), properties), 1)


def frames_of(message: tuple[str, str, str, bool, int, list[bytes]], tag: int) -> list[bytes]:
    consumer, exchange, key, redelivered, hops, bodies = message
    return [
        pamqp.frame.marshal(commands.Basic.Deliver(consumer, tag, redelivered, exchange, key), 1),
        header_of([None] * hops, bodies),
        *(pamqp.frame.marshal(ContentBody(body), 1) for body in bodies),
    ]


@given(
    st.lists(st.tuples(_MESSAGES, st.sampled_from(["", "", "beat", "other"])), max_size=8),
    st.lists(st.integers(0, 1 << 20), max_size=8),
    st.sampled_from([None, "x"]),
    st.integers(-1, 4),
    st.integers(0, 5),
)
def test_messages_pass_as_plain_python_makes_them(
    sent: list[tuple[tuple[str, str, str, bool, int, list[bytes]], str]],
    places: list[int],
    exchange: str | None,
    left: int,
    unwanted: int,
) -> None:
    data, expected, passed, dropped, others = b"", b"", [], [], 0
    rest = left
    for tag, (message, behind) in enumerate(sent, start=1):
        _, __, *bodies = frames = frames_of(message, tag)
        data += b"".join(frames)
        if behind:
            data += pamqp.frame.marshal(Heartbeat(), 0) if behind == "beat" else _OTHER
            others += behind == "other"
        if rest == 0:
            continue
        if message[4] >= unwanted:
            dropped.append(tag)
            continue
        rest -= rest > 0
        passed.append(tag)
        where = message[1] if exchange is None else exchange
        publish = pamqp.frame.marshal(commands.Basic.Publish(exchange=where, routing_key=message[2]), 1)
        header = header_of([message[3], *[None] * message[4]], message[5])
        expected += b"".join([publish, header, *bodies])
    # It keeps out what crossed so many links.
    change = HeaderEdit(
        frame_max=1 << 17,
        end="target",
        array=b"hops",
        firsts=(b"t\0", b"t\1"),
        here=(b"", b""),
        max_hops=unwanted,
    )
    relay = Relay(
        channel=1, exchange=None if exchange is None else short_string(exchange), change=change, left=left
    )
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    got, runs, gone, said, at = b"", [], [], 0, 0
    for end in ends:
        at += relay.take(data[at:end])
        got += relay.out
        runs += [tag for first, count in relay.runs for tag in range(first, first + count)]
        gone += relay.dropped
        assert all(raw == (1, _OTHER) for raw in relay.others)
        said += len(relay.others)
    assert (got, runs, gone, said) == (expected, passed, dropped, others)


def test_a_frame_for_all_messages_stands_for_each() -> None:
    publish = pamqp.frame.marshal(commands.Basic.Publish(routing_key="q", mandatory=True), 1)
    data = b"".join(b"".join(frames_of(("c", "e", "k", False, 1, [b"body"]), tag)) for tag in (1, 2))
    relay = Relay(channel=1, publish=publish)
    assert relay.take(data) == len(data)
    assert relay.runs == [(1, 2)] and relay.out.count(publish) == 2 and relay.out.endswith(b"body\xce")


@given(st.binary(max_size=80), st.integers(0, 60))
def test_bytes_that_are_no_amqp_are_refused_or_waited_for(noise: bytes, place: int) -> None:
    data = b"".join(frames_of(("c", "e", "k", False, 1, [b"body"]), 1))
    relay = Relay(channel=1)
    start = data[: place % len(data)] + noise
    with contextlib.suppress(ValueError):
        relay.take(start[relay.take(start) :] + noise)


def test_a_frame_larger_than_any_that_was_agreed_on_is_refused() -> None:
    with pytest.raises(ValueError, match="no frame"):
        Relay(channel=1).take(b"\x03\x00\x01\xff\xff\xff\xff")
