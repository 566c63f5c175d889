"""Enhanced authentication: SCRAM-SHA-256 through AUTH packets, at CONNECT and again later."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.protocols.mqtt.options import MqttOptions
from penstock.router.authentication.passwords import hash_password
from penstock.router.authorization.permissions import Permission
from tests.reference import mqtt_frames as f
from tests.support.mqtt import Gateway, Peer
from tests.support.scram import METHOD, ScramClient

PASSWORD = b"pencil"


def method_and(data: bytes | None, method: str = METHOD) -> bytes:
    block = b"\x15" + f.text(method)
    return block if data is None else block + b"\x16" + f.text(data)


def auth(reason: int, data: bytes | None, method: str = METHOD) -> bytes:
    block = method_and(data, method)
    return f.packet(15, 0, bytes((reason,)) + f.varint(len(block)) + block)


def data_of(packet: f.Packet, reason: int) -> bytes:
    """Authentication data of an AUTH or CONNACK with this reason."""
    at = packet.body.index(METHOD.encode()) + len(METHOD)
    assert packet.body[0 if packet.kind == 15 else 1] == reason
    assert packet.body[at] == 0x16
    size = int.from_bytes(packet.body[at + 1 : at + 3], "big")
    return packet.body[at + 3 : at + 3 + size]


@pytest.fixture(scope="module")
def stored() -> str:
    return hash_password(PASSWORD)


@pytest.fixture
def users(gateway: Gateway, stored: str) -> Gateway:
    for name in ("anna", "bert"):
        gateway.broker.users.set_user(name, stored, ())
        gateway.broker.authorizer.set(name, "/", Permission())
    return gateway


def begin(gateway: Gateway, client: ScramClient) -> tuple[Peer, bytes]:
    peer = gateway.peer(5)
    peer.send(f.connect("c", version=5, props=method_and(client.first())))
    (packet,) = peer.take()
    assert packet.kind == 15
    return peer, data_of(packet, 0x18)


def connected(gateway: Gateway, client: ScramClient) -> Peer:
    peer, challenge = begin(gateway, client)
    peer.send(auth(0x18, client.final(challenge)))
    (connack,) = peer.take()
    assert connack.kind == 2 and data_of(connack, 0) == client.signature
    return peer


@pytest.mark.parametrize("name", ["anna", "/:anna"])
def test_a_client_logs_in_without_sending_its_password__mqtt5_4_12_0_1(users: Gateway, name: str) -> None:
    peer = connected(users, ScramClient(name, PASSWORD))
    assert peer.session.client is not None and peer.session.client.identity.username == "anna"
    assert peer.subscribe(("t", 1)) == [1]


def test_the_first_message_may_come_in_an_auth(users: Gateway) -> None:
    client = ScramClient("anna", PASSWORD)
    peer = users.peer(5)
    peer.send(f.connect("c", version=5, props=method_and(None)))
    (packet,) = peer.take()
    assert packet.kind == 15 and packet.body[0] == 0x18
    peer.send(auth(0x18, client.first()))
    peer.send(auth(0x18, client.final(data_of(peer.take()[0], 0x18))))
    assert data_of(peer.take()[0], 0) == client.signature


@pytest.mark.parametrize(("name", "password"), [("anna", b"wrong"), ("nobody", PASSWORD)])
def test_a_wrong_password_and_an_unknown_user_look_the_same(
    users: Gateway, name: str, password: bytes
) -> None:
    client = ScramClient(name, password)
    peer, challenge = begin(users, client)
    _, second = begin(users, client)
    assert challenge.split(b",")[1:] == second.split(b",")[1:]
    peer.send(auth(0x18, client.final(challenge)))
    assert peer.bytes_taken() == b"\x20\x03\x00\x86\x00" and peer.closed


def test_an_unknown_method_is_refused__mqtt5_4_12_0_1(users: Gateway) -> None:
    peer = users.peer(5).send(f.connect("c", version=5, props=method_and(b"x", "GS2-KRB5")))
    assert peer.bytes_taken() == b"\x20\x03\x00\x8c\x00" and peer.closed


def test_data_without_a_method_is_a_protocol_error__mqtt5_3_1_2_31(users: Gateway) -> None:
    peer = users.peer(5).send(f.connect("c", version=5, props=b"\x16" + f.text(b"x")))
    assert peer.bytes_taken() == b"\x20\x03\x00\x82\x00" and peer.closed


@pytest.mark.parametrize(
    ("packet", "answer"),
    [
        (f.publish("t", props=b""), b""),
        (auth(0x18, b"x", "OTHER"), b"\x20\x03\x00\x82\x00"),
        (auth(0x19, b"x"), b"\x20\x03\x00\x82\x00"),
        (auth(0x18, None), b"\x20\x03\x00\x82\x00"),
    ],
)
def test_nothing_else_is_taken_before_it_is_done__mqtt5_3_1_2_30(
    users: Gateway, packet: bytes, answer: bytes
) -> None:
    peer, _ = begin(users, ScramClient("anna", PASSWORD))
    peer.send(packet)
    assert peer.closed and peer.bytes_taken() == answer


def test_a_client_authenticates_again__mqtt5_4_12_1_1(users: Gateway) -> None:
    peer = connected(users, ScramClient("anna", PASSWORD))
    again = ScramClient("anna", PASSWORD, "other")
    peer.send(auth(0x19, again.first()))
    challenge = data_of(peer.take()[0], 0x18)
    peer.publish("t", qos=1, packet_id=1)
    assert peer.take()[0].kind == f.PUBACK
    peer.send(auth(0x18, again.final(challenge)))
    assert data_of(peer.take()[0], 0x00) == again.signature
    assert not peer.closed


@pytest.mark.parametrize(("name", "password"), [("anna", b"wrong"), ("bert", PASSWORD)])
def test_a_failed_re_authentication_disconnects__mqtt5_4_12_1_2(
    users: Gateway, name: str, password: bytes
) -> None:
    peer = connected(users, ScramClient("anna", PASSWORD))
    again = ScramClient(name, password)
    peer.send(auth(0x19, again.first()))
    peer.send(auth(0x18, again.final(data_of(peer.take()[0], 0x18))))
    assert peer.bytes_taken() == f.disconnect(0x87) and peer.closed


def test_a_client_that_did_not_begin_with_it_may_not_authenticate_again__mqtt5_4_12_0_6(
    users: Gateway,
) -> None:
    peer = users.connect("c", 5).send(auth(0x19, ScramClient("anna", PASSWORD).first()))
    assert peer.bytes_taken() == f.disconnect(0x82) and peer.closed


def test_after_ten_failures_the_proof_waits_for_its_turn(users: Gateway) -> None:
    for _ in range(10):
        client = ScramClient("anna", b"wrong")
        peer, challenge = begin(users, client)
        peer.send(auth(0x18, client.final(challenge)))
        assert peer.bytes_taken() == b"\x20\x03\x00\x86\x00"
    for password in (b"wrong", PASSWORD):
        client = ScramClient("anna", password)
        peer, challenge = begin(users, client)
        peer.send(auth(0x18, client.final(challenge)))
        assert peer.take() == [] and "login" in peer.pause_reasons
        users.advance(2.0)
        (connack,) = peer.take()
        assert connack.kind == 2 and connack.body[1] == (0 if password == PASSWORD else 0x86)
        assert "login" not in peer.pause_reasons


def test_response_information_is_told_to_who_asks__mqtt5_3_1_2_28(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "data", MqttOptions(response_information="replies/{client_id}/"))
    asks = gateway.peer(5).send(f.connect("c", version=5, props=b"\x19\x01"))
    assert b"\x1a" + f.text("replies/c/") in asks.take()[0].body
    silent = gateway.peer(5).send(f.connect("d", version=5))
    assert b"replies" not in silent.take()[0].body
    gateway.stop()


def test_a_stop_sends_clients_to_another_server_if_there_is_one(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "data", MqttOptions(server_reference="b:1883"))
    peer = gateway.connect("c", 5)
    peer.session.shutdown()
    assert peer.bytes_taken() == f.disconnect(0x9C, b"\x1c" + f.text("b:1883"))
    gateway.stop()
