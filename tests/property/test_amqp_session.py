"""A session survives whatever a client sends: any method with any arguments, in any order, on any channel.

Each example is a run of frames on one connection of a broker that lives through all of them. Whatever
happens, nothing is raised, what comes back are well-formed frames, and the broker serves the next connection.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands
from pamqp.commands import Basic

from penstock.protocols.amqp.codec.methods import METHODS
from penstock.protocols.amqp.session.state import State
from tests.support.amqp_session import Client, World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("session"))
    yield made
    made.close()


_NAMES = [b"", b"q", b"x", b"amq.topic", b"amq.direct", b"amq.headers", b"\xff\xfe"]
names = st.sampled_from(_NAMES) | st.binary(max_size=12)
shorts = names.map(lambda name: bytes([len(name)]) + name)
_KEYS = [b"x-match", b"x-expires", b"x-message-ttl", b"x-queue-type", b"x-priority", b"k"]
_VALUES = [b"V", b"t\x01", b"I\xff\xff\xff\xff", b"I\0\0\0\5", b"S\0\0\0\3all", b"Z"]
pairs = st.tuples(st.sampled_from(_KEYS), st.sampled_from(_VALUES))
tables = st.lists(pairs, max_size=2).map(
    lambda found: (lambda body: struct.pack(">I", len(body)) + body)(
        b"".join(bytes([len(key)]) + key + value for key, value in found)
    )
)
_FIELDS = {
    "o": st.binary(min_size=1, max_size=1),
    "h": st.integers(0, 65535).map(lambda n: struct.pack(">H", n)),
    "l": st.sampled_from([0, 1, 2**32 - 1]).map(lambda n: struct.pack(">I", n)),
    "L": st.sampled_from([0, 1, 2, 3, 2**64 - 1]).map(lambda n: struct.pack(">Q", n)),
    "s": shorts,
    "S": st.binary(max_size=9).map(lambda data: struct.pack(">I", len(data)) + data),
    "t": tables,
}


@st.composite
def arguments(draw: st.DrawFn, letters: str) -> bytes:
    parts = []
    bits = 0
    for letter in letters:
        if letter == "b":
            if bits % 8 == 0:
                parts.append(draw(st.binary(min_size=1, max_size=1)))
            bits += 1
        else:
            bits = 0
            parts.append(draw(_FIELDS[letter]))
    return b"".join(parts)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """One frame, mostly a well-formed method of a channel that is open."""
    channel = draw(st.sampled_from([1, 1, 1, 1, 2, 0, 9]))
    kind = draw(st.integers(0, 19))
    if kind < 11:
        index, (_, letters) = draw(st.sampled_from(sorted(METHODS.items())))
        return frame(1, channel, struct.pack(">HH", *index) + draw(arguments(letters)))
    if kind < 14:
        letters = draw(st.sampled_from(["Lb", "LLb", "L"]))
        method = draw(st.sampled_from([80, 90, 120]))
        return frame(1, channel, struct.pack(">HH", 60, method) + draw(arguments(letters)))
    if kind < 18:
        body = draw(st.binary(max_size=9))
        bits = draw(st.sampled_from([b"\0", b"\1"]))
        publish = struct.pack(">HHH", 60, 40, 0) + draw(shorts) + draw(shorts) + bits
        blocks = st.sampled_from([b"\0\0", b"\x10\0\2", b"\x20\0\0\0\0\0", b"\xff\xff"])
        block = draw(blocks | st.binary(max_size=9))
        parts = [frame(1, channel, publish), frame(2, channel, struct.pack(">HHQ", 60, 0, len(body)) + block)]
        return b"".join([*parts, *([frame(3, channel, body)] if body else [])])
    return frame(draw(st.integers(0, 9)), channel, draw(st.binary(max_size=20)))


@settings(deadline=None)
@given(stream=st.lists(frames(), max_size=25).map(b"".join), cut=st.integers(1, 400))
def test_a_session_survives_any_frames(world: World, stream: bytes, cut: int) -> None:
    client = world.client()
    client.call(2, commands.Channel.Open(), commands.Channel.OpenOk)
    session = client.session
    for start in range(0, len(stream), cut):
        if session.ended is not None or session.dropped is not None:
            break
        client.raw(stream[start : start + cut])
        world.turn()
        check_frames(client.out.take())
    assert session.state in (State.RUNNING, State.CLOSING, State.ENDED)
    session.lost()
    world.clients.remove(client)
    check_broker(world)


def check_frames(data: bytes) -> None:
    """The server's frames are whole, and no larger than agreed. (pamqp does not know all of them.)"""
    while data:
        kind, _, size = struct.unpack_from(">BHI", data)
        assert kind in (1, 2, 3, 8) and size <= 131072 - 8
        assert data[7 + size] == 0xCE
        data = data[8 + size :]


def check_broker(world: World) -> None:
    """Another connection is served as if nothing had been."""
    client = world.client()
    queue = client.call(1, commands.Queue.Declare(exclusive=True), commands.Queue.DeclareOk).queue
    client.send(1, Basic.Consume(queue=queue, no_ack=True, consumer_tag="t"))
    client.expect(1, Basic.ConsumeOk)
    client.publish("", queue, b"alive")
    assert client.bodies() == [b"alive"]
    client.session.lost()
    world.clients.remove(client)


@settings(deadline=None)
@given(noise=st.binary(max_size=400))
def test_a_handshake_survives_noise(world: World, noise: bytes) -> None:
    for stage in ("header", "start", "tune"):
        client = Client(world, handshake=False)
        if stage == "start":
            client.raw(b"AMQP\x00\x00\x09\x01")
        elif stage == "tune":
            client.start()
        client.raw(noise)
        client.out.take()
        client.session.lost()
        world.clients.remove(client)
