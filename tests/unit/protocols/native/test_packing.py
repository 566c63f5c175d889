"""Compressed batches: in both directions, and what is none."""

from __future__ import annotations

import json
import struct
import sys

import pytest

from penstock.protocols.native.codec import kinds
from penstock.protocols.native.codec import packing as packing_module
from penstock.protocols.native.codec.packing import code_of, pack, unpack
from penstock.protocols.native.options import NativeOptions
from tests.reference import native_frames as wire
from tests.support.native_session import PLAIN, Client, World

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BODIES = [b"%d %s" % (i, b"x" * 100) for i in range(50)]
RECORDS = wire.records([(PLAIN, body) for body in BODIES])


def packing(world: World, *capabilities: str) -> Client:
    """A client that is logged in, with these capabilities."""
    client = Client(world, login=False)
    hello = {"versions": [1], "client": "test", "capabilities": list(capabilities)}
    client.send(b"PENSTOCK" + client.json_frame(0x01, hello))
    client.send(client.json_frame(0x03, {"user": "guest", "password": "guest"}))
    client.log_in()
    ((_, _, welcome), _) = client.take()
    assert kinds.ZSTD in json.loads(welcome)["capabilities"]
    client.request("open_producer", handle=1, topic="t", create=True)
    client.request("read", handle=2, topic="t", start="earliest")
    return client


BOTH = pytest.mark.parametrize("compression", [kinds.ZSTD, kinds.LZ4])


@BOTH
@pytest.mark.parametrize("size", [0, 1, 1000, 1_000_000])
def test_packed_data_is_unpacked(size: int, compression: str) -> None:
    data = bytes(i % 251 for i in range(size))
    assert unpack(pack(data, compression), size) == data


@BOTH
def test_a_bomb_is_not_unpacked(compression: str) -> None:
    frame = pack(bytes(1 << 26), compression)[4:]
    for says in (0, 1000, 1 << 20):
        with pytest.raises(ValueError, match="not the"):
            unpack(struct.pack(">I", says) + frame, 1 << 20)
    with pytest.raises(ValueError, match="at most 1048576"):
        unpack(struct.pack(">I", 1 << 26) + frame, 1 << 20)


@BOTH
@pytest.mark.parametrize("cut", range(12))
def test_truncated_or_longer_data_is_refused(cut: int, compression: str) -> None:
    packed = pack(b"abc" * 100, compression)
    for broken in (packed[:cut], packed[:-1], packed + b"x", packed[:4] + b"\0" + packed[5:]):
        with pytest.raises(ValueError):
            unpack(broken, 1000)


def test_a_window_of_more_than_16_mib_is_refused() -> None:
    wide = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    frame = wide.compress(bytes(1000)) + wide.flush()  # the size is not in it, so the window is
    with pytest.raises(ValueError, match="zstd"):
        unpack(struct.pack(">I", 1000) + frame, 1 << 20)


@BOTH
def test_compressed_batches_are_appended_and_delivered_compressed(world: World, compression: str) -> None:
    client = packing(world, compression)
    packed = pack(RECORDS, compression)
    client.send(wire.produce_packed(1, 7, 2, len(BODIES), packed, code_of(compression)))
    (confirm,) = [frame for frame in client.take() if frame[0] == 0x12]
    assert struct.unpack(">QQII", confirm[2])[0::2] == (7, len(BODIES))
    client.send(wire.credit(2, 1000, 1 << 20))
    ((kind, handle, packed),) = client.take()
    assert (kind, handle) == (kinds.DELIVER_PACKED, 2)
    first, pull, messages = wire.deliver(unpack(packed, 1 << 20))
    assert (first, pull, [message["body"] for message in messages]) == (1, 0, BODIES)
    assert len(packed) < len(RECORDS) // 3
    assert packed[4:8] == {"zstd": b"\x28\xb5\x2f\xfd", "lz4": b"\x04\x22\x4d\x18"}[compression]


def test_a_client_of_both_compressions_gets_the_one_named_first(world: World) -> None:
    for names in ((kinds.LZ4, kinds.ZSTD), (kinds.ZSTD, kinds.LZ4)):
        assert packing(world, *names).session.codec.outgoing.packs == names[0]


def test_without_the_package_there_is_no_lz4(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    frame = pack(RECORDS, kinds.LZ4)
    monkeypatch.setattr(packing_module, "_lz4", lambda: None)
    client = packing(world, kinds.LZ4)
    assert client.session.codec.outgoing.packs == ""
    client.send(wire.produce_packed(1, 0, 2, len(BODIES), frame, 2))
    assert "does not have the package lz4" in client.ended()["message"]


def test_a_client_that_does_not_ask_for_it_gets_none(world: World) -> None:
    client = packing(world, "delay")
    client.send(wire.produce_packed(1, 0, 0, len(BODIES), pack(RECORDS)))
    client.send(wire.credit(2, 1000, 1 << 20))
    assert client.bodies() == BODIES


def test_incompressible_batches_are_sent_uncompressed(world: World) -> None:
    client = packing(world, "zstd")
    client.produce(1, b"small", acks=0)
    client.send(wire.credit(2, 1000, 1 << 20))
    assert client.bodies() == [b"small"]
    random = zstd.compress(json.dumps([i * i for i in range(5000)]).encode(), 19)
    client.produce(1, random, acks=0)
    assert client.bodies() == [random]


def test_a_delayed_batch_may_be_compressed(world: World) -> None:
    client = packing(world, "zstd")
    due_ms = int(world.clock() * 1000) + 1000
    head = struct.pack(">QBBHIq", 0, 2, 1, 0, len(BODIES), due_ms)
    client.send(wire.frame(0x11, 1, head + pack(RECORDS)))
    assert [kind for kind, _, _ in client.take()] == [0x12]
    world.pass_time(1.1)
    client.send(wire.credit(2, 1000, 1 << 20))
    ((_, _, packed),) = client.take()
    assert [message["body"] for message in wire.deliver(unpack(packed, 1 << 20))[2]] == BODIES


@pytest.mark.parametrize(
    "packed", [b"", b"abc", pack(RECORDS)[:-1], pack(RECORDS + b"x"), pack(RECORDS[:-1]), pack(b"")]
)
def test_an_invalid_compressed_batch_ends_the_connection(world: World, packed: bytes) -> None:
    client = packing(world)
    client.send(wire.produce_packed(1, 0, 2, len(BODIES), packed))
    assert client.ended()["code"] == "malformed"


def test_compressed_batches_have_the_limit_of_frames(world: World) -> None:
    world.options = NativeOptions(max_frame_bytes=len(RECORDS) - 1)
    client = packing(world)
    client.send(wire.produce_packed(1, 0, 2, len(BODIES), pack(RECORDS)))
    assert client.ended()["message"].endswith(f"at most {len(RECORDS) - 1} are taken")
