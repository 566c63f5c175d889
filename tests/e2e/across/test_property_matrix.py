"""Every property of a message between MQTT 3.1.1, MQTT 5 and AMQP, in each direction, with paho and pika.

A case is what a client sends in its own terms and what each kind of receiver sees of it, in its terms. Only
what the case names is compared, but headers and user properties whole: nothing comes that nobody sent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import paho.mqtt.client as mqtt
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.e2e.mqtt.mqtt_clients import Client, connected
from tests.reference import mqtt_frames as f
from tests.support.limits import LIMIT_S
from tests.support.mqtt_wire import Wire

pytestmark = [
    pytest.mark.penstock_only("RabbitMQ 3.10's MQTT plug-in is 3.1.1 and maps less"),
]

Seen = dict[str, Any]


class Left:
    """Of a time to live, what is left of it when a message comes at once: at most 60 s less."""

    def __init__(self, most: int, unit_s: float) -> None:
        self.most = most
        self.least = most - round(60 / unit_s)

    def __eq__(self, other: object) -> bool:
        return self.least <= int(other) <= self.most  # type: ignore[call-overload,no-any-return]

    def __repr__(self) -> str:
        return f"{self.least} to {self.most}"

    __hash__ = None  # type: ignore[assignment]


LEFT_S, LEFT_MS = Left(600, 1), Left(600_000, 0.001)

MQTT311, MQTT5, AMQP = "MQTT 3.1.1", "MQTT 5", "AMQP"
KINDS = (MQTT311, MQTT5, AMQP)

TOPIC = "{unique}/x"
WHEN = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)


@dataclass
class Case:
    """One message. `{unique}` stands for the test's own topic level in texts."""

    name: str
    sent: Seen = field(default_factory=dict)
    amqp: Seen = field(default_factory=dict)
    mqtt5: Seen = field(default_factory=dict)
    mqtt311: Seen = field(default_factory=dict)
    """The fields as 3.1.1 sees them (topic, QoS, payload), where they differ from MQTT 5."""


def headers(qos: int = 1, **others: Any) -> Seen:
    """The headers of an AMQP message that came from MQTT."""
    return {"x-mqtt-publish-qos": qos, **others}


FROM_MQTT311 = [
    Case("QoS 0", {"qos": 0}, {"delivery_mode": 1, "headers": headers(0)}, {"qos": 0}),
    Case("QoS 1", {"qos": 1}, {"delivery_mode": 2, "headers": headers(1)}, {"qos": 1}),
    Case("QoS 2", {"qos": 2}, {"delivery_mode": 2, "headers": headers(2)}, {"qos": 2}),
    Case("retain", {"retain": True}, {"headers": headers(**{"x-mqtt-retain": True})}, {"retain": False}),
    Case("topic", {}, {"exchange": "amq.topic", "routing_key": "{unique}.x"}, {"topic": TOPIC}),
    Case(
        "topic with a dot",
        {"topic": "{unique}/a.b"},
        {"routing_key": "{unique}.a.b", "headers": headers(**{"x-mqtt-topic": "{unique}/a.b"})},
        {"topic": "{unique}/a.b"},
    ),
    Case(
        "topic with empty levels",
        {"topic": "{unique}//"},
        {"routing_key": "{unique}.."},
        {"topic": "{unique}//"},
    ),
    Case(
        "topic in other letters",
        {"topic": "{unique}/é"},
        {"routing_key": "{unique}.é"},
        {"topic": "{unique}/é"},
    ),
    Case(
        "topic that is longer than a routing key",
        {"topic": "{unique}/" + "x" * 300},
        {"headers": headers(**{"x-mqtt-topic": "{unique}/" + "x" * 300})},
        {"topic": "{unique}/" + "x" * 300},
    ),
    Case("empty payload", {"payload": b""}, {"payload": b""}, {"payload": b""}),
]

FROM_MQTT5 = [
    *FROM_MQTT311,
    Case(
        "payload format 1",
        {"PayloadFormatIndicator": 1},
        {"content_encoding": "utf-8", "headers": headers(**{"x-mqtt-payload-format": 1})},
        {"PayloadFormatIndicator": 1},
    ),
    Case(
        "payload format 0",
        {"PayloadFormatIndicator": 0},
        {"content_encoding": None, "headers": headers(**{"x-mqtt-payload-format": 0})},
        {"PayloadFormatIndicator": 0},
    ),
    Case(
        "payload format 1 with an encoding of its own",
        {"PayloadFormatIndicator": 1, "UserProperty": [("amqp-content-encoding", "gzip")]},
        {"content_encoding": "gzip", "headers": headers(**{"x-mqtt-payload-format": 1})},
        {"PayloadFormatIndicator": 1, "UserProperty": [("amqp-content-encoding", "gzip")]},
    ),
    Case("content type", {"ContentType": "a/b"}, {"content_type": "a/b"}, {"ContentType": "a/b"}),
    Case(
        "long content type",
        {"ContentType": "x" * 300},
        {"content_type": None, "headers": headers(**{"x-mqtt-content-type": "x" * 300})},
        {"ContentType": "x" * 300},
    ),
    Case(
        "response topic",
        {"ResponseTopic": "answers/of/me"},
        {"reply_to": "/topic/answers.of.me", "headers": headers(**{"x-reply-to-topic": "answers.of.me"})},
        {"ResponseTopic": "answers/of/me"},
    ),
    Case(
        "response topic with a dot",
        {"ResponseTopic": "a.b/c"},
        {
            "reply_to": "/topic/a.b.c",
            "headers": headers(**{"x-reply-to-topic": "a.b.c", "x-mqtt-response-topic": "a.b/c"}),
        },
        {"ResponseTopic": "a.b/c"},
    ),
    Case(
        "response topic that is a queue",
        {"ResponseTopic": "$amq/queue/answers"},
        {"reply_to": "answers", "headers": headers()},
        {"ResponseTopic": "$amq/queue/answers"},
    ),
    Case(
        "correlation data that are text",
        {"CorrelationData": b"call-7"},
        {"correlation_id": "call-7", "headers": headers()},
        {"CorrelationData": b"call-7"},
    ),
    Case(
        "correlation data that are none",
        {"CorrelationData": b"\xff\0\xfe"},
        {"correlation_id": None, "headers": headers(**{"x-correlation-id": b"\xff\0\xfe"})},
        {"CorrelationData": b"\xff\0\xfe"},
    ),
    Case(
        "long correlation data",
        {"CorrelationData": b"x" * 256},
        {"correlation_id": None, "headers": headers(**{"x-correlation-id": b"x" * 256})},
        {"CorrelationData": b"x" * 256},
    ),
    Case(
        "message expiry",
        {"MessageExpiryInterval": 600},
        {"expiration": LEFT_MS},
        {"MessageExpiryInterval": LEFT_S},
    ),
    Case(
        "user property",
        {"UserProperty": [("tenant", "red"), ("Ключ", "é")]},
        {"headers": headers(tenant="red", **{"Ключ": "é"})},
        {"UserProperty": [("tenant", "red"), ("Ключ", "é")]},
    ),
    Case(
        "user property that repeats",
        {"UserProperty": [("a", "1"), ("a", "2"), ("b", "3")]},
        {"headers": headers(a=["1", "2"], b="3")},
        {"UserProperty": [("a", "1"), ("a", "2"), ("b", "3")]},
    ),
    Case(
        "user properties in an order that headers cannot tell",
        {"UserProperty": [("a", "1"), ("b", "2"), ("a", "3")]},
        {
            "headers": headers(
                a=["1", "3"], b="2", **{"x-mqtt-user-property-order": ["a", "1", "b", "2", "a", "3"]}
            )
        },
        {"UserProperty": [("a", "1"), ("b", "2"), ("a", "3")]},
    ),
    Case(
        "user properties that stand for fields",
        {
            "UserProperty": [
                ("amqp-message-id", "m-1"),
                ("amqp-priority", "7"),
                ("amqp-timestamp", "1770091506"),
                ("amqp-type", "t"),
                ("amqp-app-id", "app"),
                ("amqp-cluster-id", "c"),
            ]
        },
        {
            "message_id": "m-1",
            "priority": 7,
            "timestamp": 1770091506,
            "type": "t",
            "app_id": "app",
            "cluster_id": "c",
        },
        {
            "UserProperty": [
                ("amqp-message-id", "m-1"),
                ("amqp-priority", "7"),
                ("amqp-timestamp", "1770091506"),
                ("amqp-type", "t"),
                ("amqp-app-id", "app"),
                ("amqp-cluster-id", "c"),
            ]
        },
    ),
    Case(
        "a user property may not vouch for a user",
        {"UserProperty": [("amqp-user-id", "root")]},
        {"user_id": None, "headers": headers(**{"amqp-user-id": "root"})},
        {"UserProperty": [("amqp-user-id", "root")]},
    ),
]

FROM_AMQP = [
    Case("delivery mode 1", {"delivery_mode": 1}, {"delivery_mode": 1}, {"qos": 0, "UserProperty": []}),
    Case("delivery mode 2", {"delivery_mode": 2}, {"delivery_mode": 2}, {"qos": 1, "UserProperty": []}),
    Case("no delivery mode", {}, {"delivery_mode": None}, {"qos": 0}),
    Case(
        "no mode from outside is believed",
        {"headers": {"x-mqtt-publish-qos": 2}, "delivery_mode": 2},
        {"headers": {"x-mqtt-publish-qos": 2}},
        {"qos": 1, "UserProperty": []},
    ),
    Case(
        "nor a QoS",
        {"headers": {"x-mqtt-qos": 2}, "delivery_mode": 1},
        {"headers": {"x-mqtt-qos": 2}},
        {"qos": 0},
    ),
    Case("routing key", {}, {"exchange": "amq.topic", "routing_key": "{unique}.x"}, {"topic": TOPIC}),
    Case(
        "content type",
        {"content_type": "a/b"},
        {"content_type": "a/b"},
        {"ContentType": "a/b", "UserProperty": []},
    ),
    Case(
        "content encoding",
        {"content_encoding": "gzip"},
        {"content_encoding": "gzip"},
        {"UserProperty": [("amqp-content-encoding", "gzip")]},
    ),
    Case(
        "payload format",
        {"headers": {"x-mqtt-payload-format": 1}, "content_encoding": "utf-8"},
        {"content_encoding": "utf-8"},
        {"PayloadFormatIndicator": 1, "UserProperty": []},
    ),
    Case("reply-to a queue", {"reply_to": "q.1"}, {"reply_to": "q.1"}, {"ResponseTopic": "$amq/queue/q.1"}),
    Case(
        "reply-to a topic", {"reply_to": "/topic/a.b"}, {"reply_to": "/topic/a.b"}, {"ResponseTopic": "a/b"}
    ),
    Case(
        "correlation id", {"correlation_id": "call"}, {"correlation_id": "call"}, {"CorrelationData": b"call"}
    ),
    Case(
        "correlation data",
        {"headers": {"x-correlation-id": b"\xff"}},
        {"headers": {"x-correlation-id": b"\xff"}},
        {"CorrelationData": b"\xff", "UserProperty": []},
    ),
    Case("expiration", {"expiration": "600000"}, {"expiration": LEFT_MS}, {"MessageExpiryInterval": LEFT_S}),
    Case(
        "fields",
        {
            "message_id": "m-1",
            "timestamp": 1770091506,
            "type": "t",
            "app_id": "app",
            "user_id": "guest",
            "priority": 7,
            "cluster_id": "c",
        },
        {
            "message_id": "m-1",
            "timestamp": 1770091506,
            "type": "t",
            "app_id": "app",
            "user_id": "guest",
            "priority": 7,
        },
        {
            "UserProperty": [
                ("amqp-priority", "7"),
                ("amqp-message-id", "m-1"),
                ("amqp-timestamp", "1770091506"),
                ("amqp-type", "t"),
                ("amqp-app-id", "app"),
                ("amqp-cluster-id", "c"),
                ("amqp-user-id", "guest"),
            ]
        },
    ),
    Case(
        "headers of every type",
        {
            "headers": {
                "text": "é",
                "int": -3,
                "big": 2**40,
                "bool": True,
                "void": None,
                "decimal": Decimal("1.25"),
                "time": WHEN,
                "array": ["a", 1, False],
                "bytes": b"\xff",
                "table": {"a": 1},
            }
        },
        {},
        {
            "UserProperty": [
                ("text", "é"),
                ("int", "-3"),
                ("big", str(2**40)),
                ("bool", "true"),
                ("void", ""),
                ("decimal", "1.25"),
                ("time", "2026-02-03T04:05:06Z"),
                ("array", "a"),
                ("array", "1"),
                ("array", "false"),
            ]
        },
    ),
    Case(
        "another exchange",
        {"exchange": "{unique}"},
        {"exchange": "{unique}", "routing_key": "{unique}.x"},
        {"topic": TOPIC, "UserProperty": [("x-exchange", "{unique}")]},
    ),
    Case("empty payload", {"payload": b""}, {"payload": b""}, {"payload": b""}),
]

SENT = {MQTT311: FROM_MQTT311, MQTT5: FROM_MQTT5, AMQP: FROM_AMQP}
CROSSINGS = [(sender, receiver, case) for sender in KINDS for case in SENT[sender] for receiver in KINDS]


MQTT_NAMES = (
    "PayloadFormatIndicator",
    "MessageExpiryInterval",
    "ContentType",
    "ResponseTopic",
    "CorrelationData",
)
MQTT_NAMES += ("UserProperty",)
AMQP_NAMES = [name for name in vars(pika.BasicProperties()) if not name.startswith("_")]


def named(value: Any, unique: str) -> Any:
    """The value with the test's own name in it."""
    if isinstance(value, str):
        return value.replace("{unique}", unique)
    if isinstance(value, dict):
        return {named(key, unique): named(item, unique) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(named(item, unique) for item in value)
    return value


class Clients:
    """A client of each kind, to send and to receive."""

    def __init__(self, amqp_port: int, mqtt_port: int) -> None:
        self.connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port))
        self.channel: BlockingChannel = self.connection.channel()
        self.channel.confirm_delivery()
        self.mqtt = {kind: Client(mqtt_port, version=version) for kind, version in ((MQTT311, 4), (MQTT5, 5))}

    def close(self) -> None:
        for client in self.mqtt.values():
            client.close()
        self.connection.close()

    def receiver(self, kind: str, unique: str) -> str:
        """Have the kind receive what is sent under `unique`; the queue where it is AMQP."""
        if kind != AMQP:
            self.mqtt[kind].subscribe(f"{unique}/#", 2)
            return ""
        queue: str = self.channel.queue_declare("", exclusive=True).method.queue
        self.channel.queue_bind(queue, "amq.topic", f"{unique}.#")
        return queue

    def send(self, kind: str, message: Seen, unique: str) -> None:
        message = dict(message)
        payload = message.pop("payload", b"payload")
        if kind != AMQP:
            topic = message.pop("topic", f"{unique}/x")
            qos = message.pop("qos", 1)
            self.mqtt[kind].publish(topic, payload, qos, **message)
            return
        exchange = message.pop("exchange", "amq.topic")
        key = message.pop("routing_key", f"{unique}.x")
        if exchange != "amq.topic":
            self.channel.exchange_declare(exchange, "topic", auto_delete=True)
            self.channel.exchange_bind("amq.topic", exchange, "#")
        self.channel.basic_publish(exchange, key, payload, pika.BasicProperties(**message))

    def receive(self, kind: str, queue: str) -> Seen:
        return seen_by_amqp(self.channel, queue) if kind == AMQP else seen_by_mqtt(self.mqtt[kind].next())


def seen_by_mqtt(message: mqtt.MQTTMessage) -> Seen:
    assert not message.dup
    seen = {name: getattr(message, name) for name in ("topic", "payload", "qos", "retain")}
    if message.properties is not None:
        seen["UserProperty"] = []
        seen |= {
            name: getattr(message.properties, name)
            for name in MQTT_NAMES
            if hasattr(message.properties, name)
        }
    return seen


def seen_by_amqp(channel: BlockingChannel, queue: str) -> Seen:
    deadline = time.monotonic() + LIMIT_S
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            break
        assert time.monotonic() < deadline, "no message"
    assert not method.redelivered
    seen = {name: getattr(properties, name) for name in AMQP_NAMES}
    return {**seen, "payload": body, "exchange": method.exchange, "routing_key": method.routing_key}


@pytest.fixture(scope="module")
def clients(amqp_and_mqtt: tuple[int, int]) -> Iterator[Clients]:
    made = Clients(*amqp_and_mqtt)
    yield made
    made.close()


@pytest.fixture(scope="module")
def amqp_and_mqtt(broker: Any) -> tuple[int, int]:
    return broker.amqp_port, broker.mqtt_port


@pytest.mark.parametrize(
    ("sender", "receiver", "case"), CROSSINGS, ids=[f"{s} to {r}: {case.name}" for s, r, case in CROSSINGS]
)
def test_a_property_crosses(clients: Clients, unique: str, sender: str, receiver: str, case: Case) -> None:
    queue = clients.receiver(receiver, unique)
    clients.send(sender, named(case.sent, unique), unique)
    seen = clients.receive(receiver, queue)
    expected: Seen = {"payload": b"payload"}
    if receiver == AMQP:
        expected |= named(case.amqp, unique)
    else:
        expected |= {"topic": f"{unique}/x", "retain": False} | named(case.mqtt5, unique)
        if receiver == MQTT311:
            expected = {
                name: expected[name] for name in ("topic", "payload", "retain", "qos") if name in expected
            }
            assert "UserProperty" not in seen
    assert {name: seen.get(name) for name in expected} == expected
    if sender != AMQP:
        assert seen.get("retain", False) is False
        if case.sent.get("retain"):
            clients.send(sender, {"topic": f"{unique}/x", "payload": b"", "retain": True}, unique)
            clients.receive(receiver, queue)


@pytest.mark.parametrize("case", FROM_MQTT5, ids=lambda case: case.name)
def test_mqtt_properties_survive_a_forward_by_amqp(clients: Clients, unique: str, case: Case) -> None:
    """An AMQP program publishes what it got, with the properties it got, under another key."""
    queue = clients.receiver(AMQP, unique)
    clients.receiver(MQTT5, "to-" + unique)
    clients.send(MQTT5, named(case.sent, unique) | {"retain": False}, unique)
    got = seen_by_amqp(clients.channel, queue)
    properties = {name: got[name] for name in AMQP_NAMES}
    clients.channel.basic_publish(
        "amq.topic", f"to-{unique}.x", got["payload"], pika.BasicProperties(**properties)
    )
    seen = clients.receive(MQTT5, "")
    expected = {k: v for k, v in named(case.mqtt5, unique).items() if k not in ("topic", "retain")}
    if "qos" in expected:
        expected["qos"] = min(expected["qos"], 1)
    assert {name: seen.get(name) for name in expected} == expected
    assert seen["topic"] == f"to-{unique}/x"


@pytest.mark.parametrize("case", FROM_AMQP, ids=lambda case: case.name)
def test_amqp_properties_survive_a_forward_by_mqtt(clients: Clients, unique: str, case: Case) -> None:
    """An MQTT 5 program publishes what it got, with the properties it got, under another topic."""
    queue = clients.receiver(AMQP, "to-" + unique)
    clients.receiver(MQTT5, unique)
    clients.send(AMQP, named(case.sent, unique), unique)
    message = clients.mqtt[MQTT5].next()
    info = clients.mqtt[MQTT5].paho.publish(
        f"to-{unique}/x", message.payload, message.qos, properties=message.properties
    )
    info.wait_for_publish(30)
    seen = seen_by_amqp(clients.channel, queue)
    fields = ("content_type", "content_encoding", "correlation_id", "expiration", "message_id", "timestamp")
    fields += ("type", "app_id", "priority", "cluster_id", "payload")
    expected = {name: value for name, value in named(case.amqp, unique).items() if name in fields}
    assert {name: seen.get(name) for name in expected} == expected
    assert seen["user_id"] is None, "nobody vouched for it"


@pytest.mark.parametrize("receiver", [MQTT5, AMQP])
@pytest.mark.parametrize("sender", [MQTT5, AMQP])
def test_a_time_to_live_counts_down_while_the_message_waits(
    clients: Clients, mqtt_port: int, unique: str, sender: str, receiver: str
) -> None:
    """From AMQP to AMQP it is what was published, as in RabbitMQ."""
    lasting: dict[str, Any] = {"version": 5, "clean": False}
    if receiver == AMQP:
        queue = clients.receiver(AMQP, unique)
    else:
        with connected(mqtt_port, unique, expiry_s=600, **lasting) as away:
            away.subscribe(f"{unique}/#", 1)
    ttl = {"MessageExpiryInterval": 600} if sender == MQTT5 else {"expiration": "600000", "delivery_mode": 2}
    clients.send(sender, ttl, unique)
    time.sleep(1.1)  # the passing of time is what is tested
    if receiver == AMQP:
        left_ms = int(clients.receive(AMQP, queue)["expiration"])
    else:
        with connected(mqtt_port, unique, expiry_s=0, **lasting) as back:
            left_ms = 1000 * seen_by_mqtt(back.next())["MessageExpiryInterval"]
    assert 500_000 < left_ms <= (600_000 if sender == receiver == AMQP else 599_000)


@pytest.mark.parametrize("sender", KINDS)
def test_subscription_identifiers_belong_to_the_delivery(
    clients: Clients, mqtt_port: int, unique: str, sender: str
) -> None:
    """From any sender, the subscriber gets its own identifier, and an AMQP consumer none."""
    queue = clients.receiver(AMQP, unique)
    with closing(Wire(mqtt_port, 5)) as subscriber:
        subscriber.connect()
        subscriber.subscribe((f"{unique}/#", 0), block=b"\x0b\x07")
        clients.send(sender, {}, unique)
        assert subscriber.message().props == {"subscription_id": [7]}
    assert clients.receive(AMQP, queue)["headers"] in (None, headers())


@pytest.mark.parametrize("version", [4, 5], ids=KINDS[:2])
def test_dup_does_not_cross(clients: Clients, mqtt_port: int, unique: str, version: int) -> None:
    """A repeated publish is an ordinary message to everyone else."""
    queue = clients.receiver(AMQP, unique)
    with closing(Wire(mqtt_port, version)) as wire:
        wire.connect()
        props = b"" if version == 5 else None
        wire.send(f.publish(f"{unique}/x", b"payload", qos=1, packet_id=1, dup=True, props=props))
        seen = seen_by_amqp(clients.channel, queue)  # which sees to it that it is not marked as redelivered
    assert seen["headers"] == headers()


@pytest.mark.parametrize("version", [4, 5], ids=KINDS[:2])
def test_amqp_sets_the_retained_message(clients: Clients, mqtt_port: int, unique: str, version: int) -> None:
    """With the header and on MQTT's exchange; an empty one removes it. Without the header nothing changes."""
    retain = {"x-mqtt-retain": True}
    clients.send(AMQP, {"headers": retain, "delivery_mode": 2, "content_type": "a/b"}, unique)
    clients.send(AMQP, {"payload": b"no header"}, unique)
    clients.send(AMQP, {"payload": b"not true", "headers": {"x-mqtt-retain": False}}, unique)
    clients.send(AMQP, {"payload": b"another exchange", "exchange": unique, "headers": retain}, unique)
    with connected(mqtt_port, version=version) as late:
        late.subscribe(f"{unique}/#", 1)
        seen = seen_by_mqtt(late.next())
        assert (seen["payload"], seen["retain"], seen["qos"]) == (b"payload", True, 1)
        if version == 5:
            assert (seen["ContentType"], seen["UserProperty"]) == ("a/b", [])
        clients.send(AMQP, {"headers": retain, "payload": b""}, unique)
        assert (late.next().payload, late.quiet()) == (b"", True)
    with connected(mqtt_port, version=version) as later:
        later.subscribe(f"{unique}/#", 1)
        assert later.quiet()
