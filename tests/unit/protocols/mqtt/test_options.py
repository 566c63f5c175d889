"""The limits in the options of the section `mqtt`: levels, windows, session expiry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.protocols.mqtt.options import TOPIC_LEVELS_MAX, MqttOptions
from tests.reference import mqtt_frames as f
from tests.support.mqtt import Gateway


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    options = MqttOptions(max_inflight=3, session_expiry_max_s=100)
    gateway = Gateway(tmp_path / "data", options=options)
    yield gateway
    gateway.stop()


@pytest.mark.parametrize("version", [4, 5])
def test_a_topic_has_so_many_levels_at_most(gateway: Gateway, version: int) -> None:
    peer = gateway.connect("c", version)
    deep = "/".join(["a"] * TOPIC_LEVELS_MAX)
    parent = deep.removesuffix("/a")
    assert peer.subscribe((f"{parent}/#", 0), (f"{deep}/#", 0), (f"$share/g/{deep}", 0)) == [
        0,
        0x8F if version == 5 else 0x80,
        0,
    ]
    peer.publish(deep, b"last")
    assert {m.payload for m in peer.publishes()} == {b"last"}
    peer.publish(f"{deep}/a")
    assert peer.closed
    assert peer.bytes_taken() == (b"\xe0\x01\x90" if version == 5 else b"")


@pytest.mark.parametrize(("version", "props", "window"), [(4, b"", 3), (5, b"", 3), (5, b"\x21\0\x02", 2)])
def test_so_many_messages_are_under_way_to_a_client(
    gateway: Gateway, version: int, props: bytes, window: int
) -> None:
    peer = gateway.connect("c", version, props=props) if version == 5 else gateway.connect("c", version)
    peer.subscribe(("t", 1))
    publisher = gateway.connect("p", 4)
    for i in range(10):
        publisher.publish("t", bytes((i,)), qos=1, packet_id=i + 1)
    got = peer.publishes()
    assert [m.payload[0] for m in got] == list(range(window))
    while got:  # each acknowledgement makes room for one
        acknowledged = got.pop(0)
        got += peer.send(f.ack(f.PUBACK, acknowledged.packet_id)).publishes()
        assert len(got) == min(window, 9 - acknowledged.payload[0])


@pytest.mark.parametrize("wanted", [b"\0\0\0\x63", b"\xff\xff\xff\xff"], ids=["99 s", "for ever"])
def test_a_session_outlives_its_connection_so_long_at_most(gateway: Gateway, wanted: bytes) -> None:
    five = gateway.peer(5).send(f.connect("five", version=5, clean=False, props=b"\x11" + wanted))
    (connack,) = five.take()
    told = b"\x11\0\0\0\x64" in connack.body  # only where it is not what was asked for
    assert told == (wanted == b"\xff\xff\xff\xff")
    three = gateway.connect("three", 4, clean=False)
    for peer in (five, three):
        peer.drop()
    gateway.advance(98)
    assert {client.client_id for client in gateway.clients} == {"five", "three"}
    gateway.advance(1)
    assert {client.client_id for client in gateway.clients} == ({"five", "three"} if told else {"three"})
    gateway.advance(1)
    assert not list(gateway.clients)
