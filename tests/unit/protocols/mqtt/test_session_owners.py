"""A session belongs to the user who began it: nobody else who knows its client id ends or gets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.protocols.mqtt.definitions import SessionDefinitions
from penstock.protocols.mqtt.options import MqttOptions
from penstock.router.authorization.grants import Grants
from penstock.router.authorization.identity import Identity
from penstock.router.authorization.permissions import Permission
from tests.reference import mqtt_frames as f
from tests.support.mqtt import Gateway, Peer

EXPIRY = b"\x11\0\0\x10\0"
WILL = ("wills", b"gone", 0, False)
WILL_IN_10_S = b"\x18\0\0\0\x0a"

pytestmark = pytest.mark.filterwarnings("error")


def with_eve(gateway: Gateway, read: str = ".*") -> Gateway:
    """The gateway, with a second user who may read so much."""
    gateway.broker.users.set_user("eve", "", ("administrator",))
    gateway.broker.authorizer.set("eve", "/", Permission(read=read))
    return gateway


def as_eve(gateway: Gateway, client_id: str = "s", version: int = 5, *, clean: bool = False) -> Peer:
    """A connection that says CONNECT as another user."""
    peer = gateway.peer(version)
    peer.identity = Identity("eve", frozenset({"administrator"}))
    props = EXPIRY if version == 5 else b""
    return peer.send(f.connect(client_id, version=version, clean=clean, user="eve", props=props))


def owner(gateway: Gateway, version: int = 5, *, clean: bool = False) -> Peer:
    """The owner, whose session stays unless it begins anew in 3.x."""
    return gateway.connect("s", version, clean=clean, props=EXPIRY if version == 5 else b"")


def is_refused(peer: Peer) -> bool:
    """Whether CONNECT was refused with the code for what a user may not do."""
    (connack,) = peer.take()
    assert connack.kind == 2 and peer.closed and peer.ended is not None
    assert "belongs to another user" in peer.ended
    return connack.body[:2] == (b"\0\x87" if peer.version == 5 else b"\0\x05")


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("version", [3, 4, 5])
def test_another_user_neither_ends_nor_gets_a_session(gateway: Gateway, version: int, clean: bool) -> None:
    with_eve(gateway)
    mine = owner(gateway, version)
    mine.subscribe(("t", 1))
    pub = gateway.connect("p")
    # Connected: it is not taken over.
    assert is_refused(as_eve(gateway, version=version, clean=clean))
    assert not mine.closed
    pub.publish("t", b"1", qos=1, packet_id=1)
    (got,) = mine.publishes()
    mine.send(f.ack(f.PUBACK, got.packet_id))
    mine.drop()
    # Away: its messages stay.
    pub.publish("t", b"2", qos=1, packet_id=2)
    assert is_refused(as_eve(gateway, version=version, clean=clean))
    mine = owner(gateway, version)
    assert mine.session_present or version == 3  # which does not say it
    assert [m.payload for m in mine.publishes()] == [b"2"]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_session_that_ends_with_its_connection_is_its_users_too(gateway: Gateway, version: int) -> None:
    with_eve(gateway)
    mine = gateway.connect("s", version)
    assert is_refused(as_eve(gateway, version=version, clean=True))
    assert not mine.closed
    mine.drop()
    assert as_eve(gateway, version=version).take()[0].body[:2] == b"\0\0"


def test_the_same_user_takes_over(gateway: Gateway) -> None:
    first = owner(gateway)
    second = owner(gateway)
    assert first.closed and second.session_present


@pytest.mark.parametrize("crash", [False, True])
def test_it_is_its_users_after_a_restart(gateway: Gateway, tmp_path: Path, crash: bool) -> None:
    with_eve(gateway)
    owner(gateway).subscribe(("t", 1))
    gateway.connect("p").publish("t", b"kept", qos=1, packet_id=1)
    if not crash:
        owner(gateway).drop()
    again = gateway.crash(tmp_path / "crashed") if crash else gateway.restart()
    assert is_refused(as_eve(again))
    mine = owner(again)
    assert mine.session_present and [m.payload for m in mine.publishes()] == [b"kept"]
    again.stop()


def test_another_user_neither_sends_nor_stops_a_delayed_will(gateway: Gateway) -> None:
    with_eve(gateway)
    watcher = gateway.connect("w")
    watcher.subscribe(("wills", 0))
    gateway.connect("s", 5, clean=False, props=EXPIRY, will=WILL, will_props=WILL_IN_10_S).drop()
    for clean in (False, True):
        assert is_refused(as_eve(gateway, clean=clean))
    assert watcher.publishes() == []
    gateway.advance(10.1)
    assert [m.payload for m in watcher.publishes()] == [b"gone"]


def test_a_session_from_definitions_is_the_users_in_them(gateway: Gateway) -> None:
    with_eve(gateway)
    part = SessionDefinitions(gateway.clients, gateway.options)
    subscription = {"filter": "t", "qos": 1, "no_local": False, "retain_as_published": False}
    session = {"client_id": "s", "user": "guest", "expiry_s": 4096}
    part.load(gateway.vhost, session | {"subscriptions": [subscription]})
    gateway.settle()
    assert is_refused(as_eve(gateway))
    # Nor does one that is there get another owner.
    part.load(gateway.vhost, session | {"user": "eve"})
    assert is_refused(as_eve(gateway))
    assert owner(gateway).session_present


def test_a_tokens_user_is_not_the_gateways_own_of_that_name(gateway: Gateway) -> None:
    mine = owner(gateway)
    peer = gateway.peer(5)
    grants, _ = Grants.parse(["read:*/*"], 2_000_000_000)
    peer.identity = Identity("guest", grants=grants)
    assert is_refused(peer.send(f.connect("s", version=5, clean=False, props=EXPIRY)))
    assert not mine.closed


def test_a_users_sessions_end_with_the_user(gateway: Gateway) -> None:
    with_eve(gateway)
    as_eve(gateway).subscribe(("t", 1))
    gateway.broker.administration.delete_user("eve")
    gateway.settle()
    assert not owner(gateway).session_present


def test_an_administrator_ends_a_session(gateway: Gateway) -> None:
    with_eve(gateway)
    mine = owner(gateway)
    mine.subscribe(("t", 1))
    assert gateway.broker.end_session(gateway.vhost, "s") > 0
    assert mine.take()[-1].body[:1] == b"\x98" and mine.closed
    assert as_eve(gateway).take()[0].body[:2] == b"\0\0"
    assert gateway.broker.end_session(gateway.vhost, "none") == 0


# mqtt.sessions_by = "client"


def shared(tmp_path: Path, read: str = ".*") -> Gateway:
    return with_eve(Gateway(tmp_path / "shared", MqttOptions(sessions_by="client")), read)


@pytest.mark.parametrize("clean", [False, True])
def test_by_client_any_user_goes_on_with_the_session(tmp_path: Path, clean: bool) -> None:
    gateway = shared(tmp_path)
    mine = owner(gateway)
    mine.subscribe(("t", 1))
    other = as_eve(gateway, clean=clean)
    assert mine.take()[-1].body[:1] == b"\x8e" and mine.closed
    assert other.take()[0].body[:2] == (b"\0\0" if clean else b"\x01\0")
    gateway.connect("p").publish("t", b"1", qos=1, packet_id=1)
    assert [m.payload for m in other.publishes()] == ([] if clean else [b"1"])
    gateway.stop()


def test_by_client_a_user_who_may_not_read_it_begins_anew(tmp_path: Path) -> None:
    gateway = shared(tmp_path, read="^$")
    owner(gateway).subscribe(("t", 1))
    gateway.connect("p").publish("t", b"secret", qos=1, packet_id=1)
    other = as_eve(gateway)
    (connack,) = other.take()
    assert connack.body[:2] == b"\0\0"
    gateway.stop()
