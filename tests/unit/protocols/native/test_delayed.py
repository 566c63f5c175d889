"""Delayed messages of native producers without sockets: when they come, by which name they are cancelled."""

from __future__ import annotations

import errno
import json
import os
import struct
from typing import Any

import pytest

from tests.reference import native_frames as wire
from tests.support.logs import held_readers
from tests.support.native_session import PLAIN, Client, World, opened, read_all


def test_a_delayed_message_is_not_early_by_its_own_time_either(world: World) -> None:
    """Records of a tick get the time at which its first one came; the clock goes on meanwhile."""
    client = opened(world)
    start = world.clock.now
    due_ms = int(start * 1000) + 1000
    payload = struct.pack(">QBBHIq", 0, 2, 0, 0, 1, due_ms)
    client.send(wire.frame(0x11, 1, payload + wire.records([(PLAIN, b"late")])))
    client.request("read", handle=2, topic="t", start="earliest")
    client.send(wire.credit(2, 10, 1000))
    world.clock.now = start + 0.998
    world.log.now_ms()
    world.clock.now = start + 1.001
    world.loop.advance(1.001)
    world.pass_time(0.01)
    (message,) = client.delivered()
    assert message["time_ms"] >= due_ms


def test_a_delayed_message_that_lies_on_the_disk_is_cancelled_where_it_was_published(world: World) -> None:
    client = opened(world)
    due_ms = int(world.clock() * 1000) + 60_000
    payload = struct.pack(">QBBHIq", 0, 2, 0, 0, 1, due_ms)
    client.send(wire.frame(0x11, 1, payload + wire.records([(PLAIN, b"never")])))
    ((_, _, confirm),) = client.take()
    position = struct.unpack(">QQII", confirm)[1]
    world.restart()
    client = opened(world)
    assert world.log.cache.get(position) is None, "it is read from the disk"
    for key in ({"topic": "u"}, {"exchange": "amq.direct", "routing_key": "t"}):
        told = client.request("cancel", due_ms=due_ms, position=position, **key)
        assert told == {"cancelled": False}
    assert world.log.delays.waiting == 1
    with held_readers(world.log):
        asked = {"do": "cancel", "due_ms": due_ms, "position": position, "topic": "t"}
        client.send(client.json_frame(0x05, asked, 77))
        assert client.request("cancel", topic="t", name="n") == {"cancelled": False}, "others go on"
    world.wait(lambda: client.frames)
    ((kind, id, told_later),) = client.take()
    assert (kind, id, json.loads(told_later)) == (0x06, 77, {"cancelled": True})
    assert world.log.delays.waiting == 0


def test_a_disk_that_does_not_answer_is_told_to_who_cancels(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = opened(world)
    due_ms = int(world.clock() * 1000) + 60_000
    payload = struct.pack(">QBBHIq", 0, 2, 0, 0, 1, due_ms)
    client.send(wire.frame(0x11, 1, payload + wire.records([(PLAIN, b"kept")])))
    ((_, _, confirm),) = client.take()
    cancel = {"due_ms": due_ms, "position": struct.unpack(">QQII", confirm)[1], "topic": "t"}
    world.restart()
    client = opened(world)

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(world.log.reader, "read", broken)
        client.send(client.json_frame(0x05, {"do": "cancel", **cancel}, 77))
        world.wait(lambda: client.frames)
        ((_, id, told),) = client.take()
        assert (id, json.loads(told)["code"]) == (77, "log_failed")
    assert world.log.delays.waiting == 1
    assert client.request("cancel", **cancel) == {"cancelled": True}


def test_a_delayed_batch_comes_when_it_is_due_and_not_when_it_is_cancelled(world: World) -> None:
    client = opened(world)
    now_ms = int(world.clock() * 1000)
    for sequence, body in ((0, b"late"), (1, b"never")):
        payload = struct.pack(">QBBHIq", sequence, 2, 0, 0, 1, now_ms + 60_000)
        client.send(wire.frame(0x11, 1, payload + wire.records([(PLAIN, body)])))
    confirms = [struct.unpack(">QQII", payload) for _, _, payload in client.take()]
    assert [sequence for sequence, *_ in confirms] == [0, 1]
    assert read_all(client) == []
    cancel = {"topic": "t", "due_ms": now_ms + 60_000, "position": confirms[1][1]}
    asked = bytearray(client.json_frame(0x05, {"do": "cancel", **cancel}, 99))
    client.session.receive(asked, len(asked))
    client.look()
    assert client.frames == [], "it is answered when it is on the disk, not before"
    ((_, _, told),) = client.take()
    assert json.loads(told) == {"cancelled": True}
    assert client.request("cancel", **cancel) == {"cancelled": False}
    for _ in range(59):
        world.pass_time(1)
    assert read_all(client) == []
    for _ in range(3):
        world.pass_time(1)
    assert read_all(client) == [b"late"]


# By a name


def later(client: Client, sequence: int, due_ms: int, name: bytes, *bodies: bytes) -> list[tuple[int, Any]]:
    """Send a delayed batch; what comes of it: (type of frame, code of a refusal or None)."""
    head = struct.pack(">QBBHIq", sequence, 2, 0, len(name), len(bodies), due_ms)
    records = wire.records([(PLAIN, body) for body in bodies])
    client.send(wire.frame(0x11, 1, head + name + records))
    return [(kind, json.loads(told)["code"] if kind == 0x13 else None) for kind, _, told in client.take()]


def test_a_delayed_message_is_replaced_and_cancelled_by_its_name(world: World) -> None:
    client = opened(world)
    due_ms = int(world.clock() * 1000) + 60_000
    assert later(client, 0, due_ms, b"n", b"first") == [(0x12, None)]
    assert later(client, 1, due_ms, b"n", b"second") == [(0x12, None)]
    assert later(client, 2, due_ms, "é".encode(), b"other") == [(0x12, None)]
    assert world.log.delays.waiting == 2
    world.restart()
    client = opened(world)
    assert client.request("cancel", topic="t", name="é") == {"cancelled": True}
    assert client.request("cancel", topic="t", name="é") == {"cancelled": False}
    assert client.request("cancel", exchange="amq.direct", name="n") == {"cancelled": False}
    for _ in range(61):
        world.pass_time(1)
    assert read_all(client) == [b"second"]
    assert client.request("cancel", topic="t", name="n") == {"cancelled": False}
    # Due in the past: it replaces the one that waits, and comes at once.
    due_ms = int(world.clock() * 1000) + 60_000
    assert later(client, 3, due_ms, b"n", b"third") == [(0x12, None)]
    assert later(client, 4, 1, b"n", b"fourth") == [(0x12, None)]
    world.pass_time(1)
    assert world.log.delays.waiting == 0


def test_names_of_delayed_messages_are_checked(world: World) -> None:
    client = opened(world)
    due_ms = int(world.clock() * 1000) + 60_000
    assert later(client, 0, due_ms, b"n", b"a", b"b") == [(0x13, "bad_field")]
    assert later(client, 1, due_ms, b"\xff", b"a") == [(0x13, "bad_field")]
    assert world.log.delays.waiting == 0
    assert later(client, 2, due_ms, b"n" * 255, b"a") == [(0x12, None)]
    assert [kind for kind, _ in later(client, 3, due_ms, b"n" * 256, b"a")] == [0x0F]
    assert not client.session.running
