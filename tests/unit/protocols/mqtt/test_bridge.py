"""Messages that cross: from AMQP to sessions, through routes that look at each message, and what cannot
cross.
"""

from __future__ import annotations

from penstock.router.authorization.identity import Actor
from tests.reference import mqtt_frames as f
from tests.support.bridged import amqp_publish
from tests.support.mqtt import Gateway


def test_amqp_messages_are_translated_for_each_version(gateway: Gateway) -> None:
    old, new = gateway.connect("a", 4), gateway.connect("b", 5)
    for peer in (old, new):
        peer.subscribe(("s/+", 2))
    properties = b"\x80\0" + b"\x0atext/plain"
    for i in range(3):
        amqp_publish(gateway, "s.x", bytes((i,)), properties, flags=2)
    amqp_publish(gateway, "s.y", b"transient", properties)
    block = b"\x03" + f.text("text/plain")
    assert [(m.topic, m.payload, m.qos) for m in old.publishes()] == [
        (b"s/x", b"\0", 1),
        (b"s/x", b"\1", 1),
        (b"s/x", b"\2", 1),
        (b"s/y", b"transient", 0),
    ]
    assert [(m.topic, m.block, m.qos) for m in new.publishes()] == [(b"s/x", block, 1)] * 3 + [
        (b"s/y", block, 0)
    ]


def test_a_key_that_is_no_topic_is_skipped_and_settled(gateway: Gateway) -> None:
    sub = gateway.connect("s")
    sub.subscribe(("#", 1))
    for key in ("", "a.*", "a+b", "a#", "ok"):
        amqp_publish(gateway, key, key.encode(), flags=2)
    # `*` is an ordinary character of a topic.
    assert [m.topic for m in sub.publishes()] == [b"a/*", b"ok"]
    (client,) = gateway.clients
    assert client.queue.cursor.outstanding == 2


def test_expiration_of_amqp_counts_down(gateway: Gateway) -> None:
    sub = gateway.connect("s", 5, clean=False, props=b"\x11\0\0\x10\0")
    sub.subscribe(("s", 1))
    sub.drop()
    amqp_publish(gateway, "s", b"x", b"\x01\0" + b"\x0560000", flags=2)
    gateway.advance(20)
    sub = gateway.connect("s", 5, clean=False, props=b"\x11\0\0\x10\0")
    (got,) = sub.publishes()
    assert got.block == b"\x02\0\0\0\x28"


def test_a_route_that_looks_at_each_message_is_taken_in_python(gateway: Gateway) -> None:
    """A headers exchange behind amq.topic: the scanner leaves the message to the session, in order."""
    actor = Actor(gateway.guest, object())
    gateway.vhost.declare_exchange("h", "headers", actor)
    gateway.vhost.declare_queue("q", actor)
    gateway.vhost.bind_queue("q", "h", "", actor, {"x-match": "any", "k": "v"})
    gateway.vhost.bind_exchange("h", "amq.topic", "s.*", actor)
    sub = gateway.connect("s", 5)
    sub.subscribe(("#", 0))
    pub = gateway.connect("p", 5)
    stream = [f.publish("a", b"1", props=b""), f.publish("s/x", b"2", qos=1, packet_id=5, props=b"")]
    stream += [f.publish("s/y", b"3", qos=2, packet_id=6, props=b""), f.publish("a", b"4", props=b"")]
    pub.send(b"".join(stream))
    assert [m.payload for m in sub.publishes()] == [b"1", b"2", b"3", b"4"]
    assert pub.bytes_taken() == f.ack(f.PUBACK, 5) + f.ack(f.PUBREC, 6)


def test_a_refused_publish_is_answered_and_the_connection_stays(gateway: Gateway) -> None:
    from penstock.router.authorization.permissions import Permission

    gateway.broker.authorizer.set("guest", "/", Permission(write="^$"))
    new, old = gateway.connect("a", 5), gateway.connect("b", 4)
    assert new.publish("t", qos=1, packet_id=1).bytes_taken() == f.ack(f.PUBACK, 1, 0x87)
    assert new.publish("t", qos=2, packet_id=2).bytes_taken() == f.ack(f.PUBREC, 2, 0x87)
    assert new.publish("t").bytes_taken() == b""
    assert old.publish("t", qos=1, packet_id=1).bytes_taken() == f.ack(f.PUBACK, 1)
    assert new.subscribe(("t", 1)) == [1]
    gateway.broker.authorizer.set("guest", "/", Permission(read="^$"))
    assert new.subscribe(("u", 1)) == [0x87]
    assert old.subscribe(("u", 1)) == [0x80]


def test_a_deleted_queue_ends_the_connection(gateway: Gateway) -> None:
    peer = gateway.connect("s", 5)
    peer.subscribe(("t", 0))
    gateway.vhost.delete_session("s")
    assert peer.closed
    assert peer.bytes_taken() == b"\xe0\x01\x98"
