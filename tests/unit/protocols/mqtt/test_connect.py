"""CONNECT and CONNACK: who is let in, with what session, and how refusals look."""

from __future__ import annotations

import pytest

from penstock.protocols.mqtt.session._connecting import split_user_name
from tests.reference import mqtt_frames as f
from tests.support.mqtt import Gateway


def properties_of(connack: f.Packet) -> bytes:
    reader = f.Reader(connack.body[2:])
    return reader.take(reader.varint())


@pytest.mark.parametrize("version", [3, 4])
def test_connack_of_3_x_is_four_bytes(gateway: Gateway, version: int) -> None:
    assert gateway.peer(version).send(f.connect("a", version=version)).bytes_taken() == b"\x20\x02\x00\x00"


def test_connack_of_5_0_says_the_limits_that_differ_from_none(gateway: Gateway) -> None:
    (connack,) = gateway.peer(5).send(f.connect("a", version=5)).take()
    assert connack.body[:2] == b"\0\0"
    assert properties_of(connack) == (
        b"\x21" + (32_768).to_bytes(2, "big") + b"\x27" + (1 << 20).to_bytes(4, "big") + b"\x22\0\x40"
    )


def test_an_empty_client_id_with_clean_start_is_assigned_one__mqtt5_3_1_3_7(gateway: Gateway) -> None:
    (connack,) = gateway.peer(5).send(f.connect("", version=5)).take()
    assert b"\x12\x00\x1dauto-" in connack.body
    (client,) = gateway.clients
    assert client.client_id.startswith("auto-")


def test_an_empty_client_id_without_clean_session_is_refused__mqtt311_3_1_3_8(gateway: Gateway) -> None:
    peer = gateway.peer().send(f.connect("", clean=False))
    assert peer.bytes_taken() == b"\x20\x02\x00\x02"
    assert peer.closed


def test_an_empty_client_id_is_refused_in_3_1(gateway: Gateway) -> None:
    assert gateway.peer(3).send(f.connect("", version=3)).bytes_taken() == b"\x20\x02\x00\x02"


@pytest.mark.parametrize("level", [1, 2, 3, 6, 0x83, 0x85])
def test_an_unknown_level_is_answered_in_the_nearest_dialect(gateway: Gateway, level: int) -> None:
    body = f.text("MQTT") + bytes((level, 2, 0, 0)) + f.text("a")
    peer = gateway.peer().send(f.packet(1, 0, body))
    assert peer.bytes_taken() == (b"\x20\x03\x00\x84\x00" if level == 6 else b"\x20\x02\x00\x01")
    assert peer.closed


@pytest.mark.parametrize(
    "first",
    [
        f.packet(12, 0, b""),
        f.publish("a"),
        b"\x10\xff\xff\xff\xff\x01",
        b"GET / HTTP/1.1\r\n\r\n",
        f.packet(1, 0, f.text("MQTX") + b"\4\2\0\0" + f.text("a")),
        f.packet(1, 1, f.text("MQTT") + b"\4\2\0\0" + f.text("a")),
        f.packet(1, 0, f.text("MQTT") + b"\4\3\0\0" + f.text("a")),
        f.packet(1, 0, f.text("MQTT") + b"\4\x40\0\0" + f.text("a") + f.text("pw")),
        f.packet(1, 0, f.text("MQTT") + b"\4\2\0\0" + f.text("a") + b"x"),
        f.packet(1, 0, b""),
        b"\x10\x80\x80\x04",
    ],
)
def test_a_first_packet_other_than_connect_is_closed_without_a_byte(gateway: Gateway, first: bytes) -> None:
    peer = gateway.peer().send(first)
    assert peer.closed
    assert peer.take() == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\5\2\0\0\x05\x11\0\0\0", 0x81),  # a block longer than the packet
        (b"\5\2\0\0\x02\x7f\0" + f.text("a"), 0x81),  # an unknown property
        (b"\5\2\0\0\x03\x13\0\1" + f.text("a"), 0x81),  # server keep alive
        (b"\5\2\0\0\x06\x21\0\1\x21\0\1" + f.text("a"), 0x82),  # twice
        (b"\5\2\0\0\x03\x21\0\0" + f.text("a"), 0x82),  # receive maximum 0
        (b"\5\2\0\0\x05\x27\0\0\0\0" + f.text("a"), 0x82),  # maximum packet size 0
        (b"\5\2\0\0\x02\x17\2" + f.text("a"), 0x82),  # request problem information 2
        (b"\5\2\0\0\x04\x16\0\1x" + f.text("a"), 0x82),  # authentication data without method
        (b"\5\2\0\0\0" + f.text("a\x01b"), 0x85),
        (b"\5\2\0\0\x06\x17\0\x15\0\1x" + f.text("a"), 0x8C),
        (b"\5\6\0\0\0" + f.text("a") + b"\0" + f.text("w/#") + f.text(""), 0x81),
        (b"\5\x1e\0\0\0" + f.text("a") + b"\0" + f.text("w") + f.text(""), 0x81),  # will QoS 3
        (b"\5\x0a\0\0\0" + f.text("a"), 0x81),  # will QoS without a will
        (b"\5\6\0\0\0" + f.text("a") + b"\3\x08\0\0" + f.text("w") + f.text(""), 0x82),  # response topic ""
        (b"\5\2\0\0\0\0\2\xc3\x28", 0x81),
        (b"\5\2\0\0\0\0\1\0", 0x81),
        (b"\5\2\0\0\0" + f.text(b"\xed\xa0\x80"), 0x81),  # a surrogate
    ],
)
def test_a_wrong_connect_of_5_0_is_told_why(gateway: Gateway, body: bytes, reason: int) -> None:
    peer = gateway.peer(5).send(f.packet(1, 0, f.text("MQTT") + body))
    assert peer.bytes_taken() == bytes((0x20, 3, 0, reason, 0))
    assert peer.closed


def test_a_connect_in_single_bytes_is_the_same(gateway: Gateway) -> None:
    peer = gateway.peer(5)
    for byte in f.connect("a", version=5, user="u", password=b"p"):
        peer.send(bytes((byte,)))
    assert peer.take()[0].kind == 2
    assert peer.logins == [("u", b"p")]


def test_a_connect_larger_than_may_come_before_login_is_closed(gateway: Gateway) -> None:
    peer = gateway.peer().send(
        f.connect("a", user="u", password=bytes(65535), will=("w", bytes(10), 0, False))[:100]
    )
    assert peer.closed


def test_a_password_without_a_user_name_is_one_in_5_0_alone(gateway: Gateway) -> None:
    body = f.text("MQTT") + b"%c\x42\0\0"
    peer = gateway.peer(5).send(f.packet(1, 0, body % 5 + b"\0" + f.text("a") + f.text(b"token")))
    assert peer.take()[0].body[1] == 0
    assert peer.logins == [("", b"token")], "it is checked: who has a wrong one is not anonymous"
    old = gateway.peer().send(f.packet(1, 0, body % 4 + f.text("a") + f.text(b"token")))
    assert old.closed and old.take() == []


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_client_id_may_be_nearly_as_long_as_a_connect(gateway: Gateway, version: int) -> None:
    client_id = "\u20ac" * 21_000
    first = gateway.connect(client_id, version)
    assert gateway.clients.find("/", client_id) is not None
    gateway.connect(client_id, version)
    assert first.closed


def test_a_wrong_password_is_refused(gateway: Gateway) -> None:
    for version, answer in ((4, b"\x20\x02\x00\x04"), (5, b"\x20\x03\x00\x86\x00")):
        peer = gateway.peer(version)
        peer.identity = None
        assert peer.send(f.connect("a", version=version, user="u", password=b"p")).bytes_taken() == answer
        assert peer.closed


def test_a_vhost_stands_before_the_last_colon() -> None:
    assert split_user_name("guest") == ("/", "guest")
    assert split_user_name("a:b:guest") == ("a:b", "guest")


def test_a_vhost_that_is_not_there_is_refused_as_one_without_permission(gateway: Gateway) -> None:
    gateway.broker.administration.put_vhost("closed")
    for vhost in ("closed", "none"):
        peer = gateway.peer(5)
        peer.send(f.connect("a", version=5, user=f"{vhost}:guest", password=b"guest"))
        assert peer.bytes_taken() == b"\x20\x03\x00\x87\x00"
        assert peer.logins == [("guest", b"guest")]


def test_a_second_connect_is_a_protocol_error__mqtt5_3_1_0_2(gateway: Gateway) -> None:
    peer = gateway.connect("a", 5).send(f.connect("a", version=5))
    assert peer.bytes_taken() == b"\xe0\x01\x82"
    assert gateway.connect("b").send(f.connect("b")).bytes_taken() == b""


def test_an_expiry_above_the_maximum_is_capped_and_told(gateway: Gateway) -> None:
    (connack,) = gateway.peer(5).send(f.connect("a", version=5, props=b"\x11\xff\xff\xff\xff")).take()
    assert b"\x11" + (604800).to_bytes(4, "big") in properties_of(connack)


def test_packets_behind_connect_in_the_same_read_are_handled(gateway: Gateway) -> None:
    peer = gateway.peer().send(
        f.connect("a") + f.subscribe(1, ("t", 0)) + f.publish("t", b"1") + f.packet(12, 0, b"")
    )
    assert [p.kind for p in peer.take()] == [2, 9, 13, 3]


def test_a_take_over_tells_the_old_connection__mqtt5_3_1_4_3(gateway: Gateway) -> None:
    old = gateway.connect("a", 5)
    old.subscribe(("t", 0))
    new = gateway.connect("a", 5, clean=False)
    assert old.closed
    assert old.bytes_taken() == b"\xe0\x01\x8e"
    # Its session ended with it: the expiry was 0.
    assert not new.session_present


def test_keep_alive_is_one_and_a_half_times(gateway: Gateway) -> None:
    peer = gateway.connect("a", 5, keep_alive=10)
    gateway.loop.advance(14.9)
    peer.session.handle_deadline(gateway.loop.time())
    assert not peer.closed
    assert peer.send(f.packet(12, 0, b"")).bytes_taken() == b"\xd0\x00"
    deadline = peer.session.deadline()
    assert deadline == pytest.approx(29.9)
    gateway.loop.advance(15.1)
    peer.session.handle_deadline(gateway.loop.time())
    assert peer.closed
    assert peer.bytes_taken() == b"\xe0\x01\x8d"


def test_keep_alive_zero_is_never(gateway: Gateway) -> None:
    assert gateway.connect("a").session.deadline() is None


def test_at_shutdown_clients_of_5_0_are_told(gateway: Gateway) -> None:
    five, four = gateway.connect("a", 5), gateway.connect("b")
    five.session.shutdown()
    four.session.shutdown()
    assert five.bytes_taken() == b"\xe0\x01\x8b"
    assert four.bytes_taken() == b""
    assert five.closed and four.closed


def test_only_servers_send_some_packets(gateway: Gateway) -> None:
    for kind in (0, 2, 9, 11, 13):
        assert gateway.connect("a", 5).send(f.packet(kind, 0, b"")).bytes_taken() == b"\xe0\x01\x82"
    assert gateway.connect("a", 5).send(f.packet(15, 0, b"\x18")).bytes_taken() == b"\xe0\x01\x82"
