"""MQTT 5.0, section 4.12: enhanced authentication, with SCRAM-SHA-256 over AUTH packets."""

from __future__ import annotations

import pytest

from tests.reference import mqtt_frames as f
from tests.support.mqtt_wire import Answer, Gate, Wire, props, wrong_login
from tests.support.scram import METHOD, ScramClient

CONTINUE, AGAIN = 0x18, 0x19


def auth(reason: int, data: bytes, method: str = METHOD) -> bytes:
    block = props(authentication_method=method, authentication_data=data)
    return f.packet(15, 0, bytes((reason,)) + f.varint(len(block)) + block)


def begin(gate: Gate, client: ScramClient, **limits: int) -> tuple[Wire, Answer]:
    """A connection that has got its challenge."""
    wire = gate.wire()
    first = props(authentication_method=METHOD, authentication_data=client.first(), **limits)
    wire.send(f.connect("", version=5, props=first))
    return wire, wire.answer(15)


def proved(wire: Wire, client: ScramClient, challenge: Answer) -> Wire:
    return wire.send(auth(CONTINUE, client.final(challenge.props["authentication_data"][0])))


def guest(nonce: str = "c1ient") -> ScramClient:
    return ScramClient("guest", b"guest", nonce)


def connected(gate: Gate) -> Wire:
    """A client that proved that it is guest."""
    client = guest()
    wire, challenge = begin(gate, client)
    connack = proved(wire, client, challenge).answer(2)
    assert connack.code == 0
    assert connack.props["authentication_data"] == [client.signature]
    return wire


def test_mqtt5_4_12_0_2__a_challenge_is_auth_0x18(gate: Gate) -> None:
    _, challenge = begin(gate, guest())
    assert challenge.code == CONTINUE
    assert challenge.props["authentication_data"][0].startswith(b"r=c1ient")


def test_mqtt5_4_12_0_4__a_login_that_fails_is_refused_and_closed(gate: Gate) -> None:
    """Known or not: the challenge does not tell, the proof does."""
    login = wrong_login()
    client = ScramClient(login["user"], login["password"])
    wire, challenge = begin(gate, client)
    assert challenge.code == CONTINUE
    assert proved(wire, client, challenge).until_closed() == b"\x20\3\0\x86\0"


def test_mqtt5_4_12_0_5__auth_and_connack_name_the_method(gate: Gate) -> None:
    """And the client's AUTH has to."""
    client = guest()
    wire, challenge = begin(gate, client)
    assert challenge.props["authentication_method"] == [METHOD.encode()]
    connack = proved(wire, client, challenge).answer(2)
    assert connack.props["authentication_method"] == [METHOD.encode()]
    wire, _ = begin(gate, guest())
    assert wire.send(auth(CONTINUE, b"x", "OTHER")).until_closed() == b"\x20\3\0\x82\0"


def test_mqtt5_4_12_1_1__a_client_authenticates_again(gate: Gate, unique: str) -> None:
    """While everything else goes on; with its method only."""
    wire = connected(gate)
    client = guest("again")
    challenge = wire.send(auth(AGAIN, client.first())).answer(15)
    assert challenge.code == CONTINUE
    wire.publish(unique, qos=1, packet_id=1)
    assert wire.answer(4).packet_id == 1
    done = proved(wire, client, challenge).answer(15)
    assert (done.code, done.props["authentication_method"]) == (0, [METHOD.encode()])
    assert done.props["authentication_data"] == [client.signature]
    assert wire.ping() == []
    assert wire.send(auth(AGAIN, b"x", "OTHER")).until_closed() == b"\xe0\1\x82"


def test_mqtt5_4_12_1_2__who_fails_to_authenticate_again_is_disconnected(gate: Gate) -> None:
    wire = connected(gate)
    client = ScramClient("guest", b"wrong", "again")
    challenge = wire.send(auth(AGAIN, client.first())).answer(15)
    assert proved(wire, client, challenge).until_closed() == b"\xe0\1\x87"


@pytest.mark.parametrize("more", [0, 10])
def test_mqtt5_3_15_2_2__a_reason_string_does_not_make_auth_too_large(gate: Gate, more: int) -> None:
    """A client that takes no more than the challenge itself gets it all the same."""
    _, challenge = begin(gate, guest())
    (data,) = challenge.props["authentication_data"]
    size = len(auth(CONTINUE, data)) + more
    wire, challenge = begin(gate, guest(), maximum_packet_size=size)
    assert len(auth(CONTINUE, challenge.props["authentication_data"][0])) <= size
    assert proved(wire, guest(), challenge).next().kind == 2


def test_mqtt5_3_15_2_3__user_properties_do_not_make_auth_too_large(gate: Gate) -> None:
    """There are none at all."""
    wire = connected(gate)
    client = guest("again")
    challenge = wire.send(auth(AGAIN, client.first())).answer(15)
    done = proved(wire, client, challenge).answer(15)
    assert "user" not in challenge.props and "user" not in done.props
