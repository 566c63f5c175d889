"""Topic permissions hold for everything an MQTT client does with a topic."""

from __future__ import annotations

import pytest

from penstock.router.authorization.permissions import TopicPermission
from tests.reference import mqtt_frames as f
from tests.support.mqtt import Gateway

EXPIRY = b"\x11\0\0\x10\0"


@pytest.fixture
def own(gateway: Gateway) -> Gateway:
    """guest may write below its client id, and read that and what is below `all`."""
    permission = TopicPermission("^{client_id}\\.", "^({client_id}|all)\\.")
    gateway.broker.authorizer.set_topic("guest", "/", "amq.topic", permission)
    return gateway


def test_a_client_publishes_where_its_client_id_lets_it(own: Gateway) -> None:
    one, two = own.connect("one", 5), own.connect("t.*", 5)
    assert one.publish("one/x", qos=1, packet_id=1).bytes_taken() == f.ack(f.PUBACK, 1, 0x10)
    assert one.publish("two/x", qos=1, packet_id=2).bytes_taken() == f.ack(f.PUBACK, 2, 0x87)
    assert two.publish("two/x", qos=1, packet_id=1).bytes_taken() == f.ack(f.PUBACK, 1, 0x87)
    assert two.publish("t.*/x", qos=1, packet_id=2).bytes_taken() == f.ack(f.PUBACK, 2, 0x10)


def test_a_connection_from_before_the_permission_is_held_to_it(gateway: Gateway) -> None:
    one = gateway.connect("one", 5)
    assert one.publish("two/x", qos=1, packet_id=1).bytes_taken() == f.ack(f.PUBACK, 1, 0x10)
    gateway.broker.authorizer.set_topic("guest", "/", "amq.topic", TopicPermission("^{client_id}\\."))
    assert one.publish("two/x", qos=1, packet_id=2).bytes_taken() == f.ack(f.PUBACK, 2, 0x87)
    assert one.publish("one/x", qos=1, packet_id=3).bytes_taken() == f.ack(f.PUBACK, 3, 0x10)


def test_a_client_subscribes_to_what_it_may_read(own: Gateway) -> None:
    one = own.connect("one", 5)
    assert one.subscribe(("one/#", 1), ("all/+", 0), ("two/#", 0), ("#", 0)) == [1, 0, 0x87, 0x87]


def test_a_refused_message_is_not_retained(own: Gateway) -> None:
    one = own.connect("one", 5)
    assert one.publish("two/x", qos=1, packet_id=1, retain=True).bytes_taken() == f.ack(f.PUBACK, 1, 0x87)
    assert len(own.vhost.retained) == 0


def test_a_will_is_asked_about_at_connect(own: Gateway) -> None:
    peer = own.peer(5)
    peer.send(f.connect("one", version=5, will=("two/x", b"gone", 0, False)))
    assert peer.received[0].body[1] == 0x87 and peer.closed
    own.connect("one", 5, will=("one/x", b"gone", 0, False))


@pytest.mark.parametrize("topic", ["all/x", "$share/g/all/x"])
def test_a_subscription_that_is_not_allowed_any_more_ends(gateway: Gateway, topic: str) -> None:
    here, away = (gateway.connect(name, 5, clean=False, props=EXPIRY) for name in ("here", "away"))
    here.subscribe((topic, 1), ("mine", 1))
    away.subscribe((topic, 1))
    away.drop()
    pub = gateway.connect("pub", 5)
    gateway.broker.authorizer.set_topic("guest", "/", "amq.topic", TopicPermission(".*", "^mine$"))
    pub.publish("all/x", b"secret")
    pub.publish("mine", b"yes", qos=1, packet_id=1)
    assert here.session.client is not None
    assert list(here.session.client.subscriptions) == ["mine"]
    assert [m.payload for m in here.publishes()] == [b"yes"]
    back = gateway.connect("away", 5, clean=False, props=EXPIRY)
    assert back.session_present and back.publishes() == []
    assert len(gateway.clients.shares) == 0


def test_a_user_who_lost_the_vhost_is_disconnected_and_the_sessions_end(gateway: Gateway) -> None:
    here, away = (gateway.connect(name, 5, clean=False, props=EXPIRY) for name in ("here", "away"))
    away.drop()
    gateway.broker.authorizer.clear("guest", "/")
    assert here.closed and here.bytes_taken() == f.disconnect(0x87)
    assert len(gateway.clients) == 0 and len(gateway.broker.connections) == 0
