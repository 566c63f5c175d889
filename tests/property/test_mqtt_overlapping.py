"""Overlapping subscriptions and topic aliases of a 5.0 client, against the text of the specification.

Random subscriptions of one client, with and without identifiers, change while others publish, and while it
comes and goes with other limits. In every history a message comes once, at the highest QoS that is granted
(mqtt5:3.3.4-2), with the identifiers of all subscriptions that match (mqtt5:3.3.4-3 to 5); and an alias
stands for the topic that it was last sent with on this connection, and is within the client's maximum
(mqtt5:3.3.2-11).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.mqtt.codec._shared_packets import forget_runs
from tests.reference import mqtt_frames as f
from tests.support.mqtt import Gateway, Peer
from tests.support.mqtt_wire import read_props

FILTERS = ("a/b", "a/+", "a/#", "#", "+/b", "a/b/c", "+/+/+")
TOPICS = ("a/b", "a", "a/c", "a/b/c", "b", "x/b")

CHANGES = st.one_of(
    st.tuples(st.just("subscribe"), st.sampled_from(FILTERS), st.integers(0, 2), st.integers(0, 3)),
    st.tuples(st.just("unsubscribe"), st.sampled_from(FILTERS)),
    st.tuples(st.just("reconnect"), st.integers(0, 4)),
    st.tuples(
        st.just("publish"),
        st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 2)), min_size=1, max_size=6),
    ),
)


def matches(topic_filter: str, topic: str) -> bool:
    """By the words of mqtt5:4.7, level by level."""
    wanted, levels = topic_filter.split("/"), topic.split("/")
    for i, level in enumerate(wanted):
        if level == "#":
            return True
        if i >= len(levels) or level not in ("+", levels[i]):
            # `#` stands for its parent, too.
            return False
    return len(wanted) == len(levels)


def granted(topic_filter: str, topic: str) -> bool:
    return matches(topic_filter, topic) or (
        topic_filter.endswith("/#") and matches(topic_filter.removesuffix("/#"), topic)
    )


@dataclass
class Got:
    """A PUBLISH as the client understands it."""

    topic: str
    payload: bytes
    qos: int
    identifiers: list[int]


class Subscriber:
    """The client: it resolves aliases and acknowledges at once."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.peer: Peer | None = None
        self.aliases: dict[int, str] = {}
        self.alias_maximum = 0

    def connect(self, alias_maximum: int) -> None:
        if self.peer is not None:
            self.peer.drop()
        limit = b"\x22" + alias_maximum.to_bytes(2, "big") if alias_maximum else b""
        self.peer = self.gateway.connect("s", 5, clean=False, props=b"\x11\0\0\x10\0" + limit)
        self.aliases, self.alias_maximum = {}, alias_maximum

    def read(self) -> list[Got]:
        """The received messages, until no more come for the acknowledgements."""
        assert self.peer is not None
        got = []
        while packets := self.peer.take():
            for packet in packets:
                if packet.kind == f.PUBREL:
                    self.peer.send(f.ack(f.PUBCOMP, f.parse_ack(packet, 5)[0]), settle=False)
                    continue
                assert packet.kind == f.PUBLISH, packet
                got.append(self.publish(packet))
        return got

    def publish(self, packet: f.Packet) -> Got:
        assert self.peer is not None
        reader, qos = f.Reader(packet.body), packet.flags >> 1 & 3
        topic = reader.field().decode()
        if qos:
            packet_id = reader.number(2)
            self.peer.send(f.ack(f.PUBACK if qos == 1 else f.PUBREC, packet_id), settle=False)
        properties = read_props(reader)
        (alias,) = properties.get("topic_alias", [0])
        assert alias <= self.alias_maximum
        if topic and alias:
            self.aliases[alias] = topic
        return Got(
            topic or self.aliases[alias], reader.rest, qos, sorted(properties.get("subscription_id", []))
        )


@given(first=st.integers(0, 4), changes=st.lists(CHANGES, max_size=25))
def test_a_message_comes_once_with_all_identifiers_and_its_topic(
    first: int, changes: list[tuple[object, ...]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(Path(folder) / "data")
        publisher, subscriber = gateway.connect("p", 5), Subscriber(gateway)
        subscriber.connect(first)
        kept: dict[str, tuple[int, int]] = {}
        number = 0
        for what, *arguments in changes:
            peer = subscriber.peer
            assert peer is not None
            if what == "reconnect":
                subscriber.connect(*arguments)  # type: ignore[arg-type]
            elif what == "subscribe":
                topic_filter, qos, identifier = arguments
                block = bytes((0x0B, identifier)) if identifier else b""  # type: ignore[list-item]
                assert peer.subscribe((topic_filter, qos), props=block) == [qos]  # type: ignore[arg-type]
                kept[topic_filter] = qos, identifier  # type: ignore[index,assignment]
            elif what == "unsubscribe":
                (topic_filter,) = arguments
                peer.send(f.unsubscribe(5, topic_filter, version=5))  # type: ignore[arg-type]
                assert [p.kind for p in peer.take()] == [11]
                kept.pop(topic_filter, None)  # type: ignore[arg-type]
            else:
                expected = []
                for topic, qos in arguments[0]:  # type: ignore[attr-defined]
                    payload = number.to_bytes(4, "big")
                    publisher.publish(topic, payload, qos=qos, packet_id=number + 1 if qos else 0)
                    number += 1
                    found = [terms for wanted, terms in kept.items() if granted(wanted, topic)]
                    if found:
                        identifiers = sorted(i for _, i in found if i)
                        expected.append(Got(topic, payload, min(qos, max(q for q, _ in found)), identifiers))
                    if qos == 2:
                        publisher.send(f.ack(f.PUBREL, number))
                got = subscriber.read()
                # A QoS 2 message waits for its packet id to be durable, and others may pass it.
                assert sorted(got, key=lambda message: message.payload) == expected
                for qos in (0, 1, 2):
                    payloads = [message.payload for message in got if message.qos == qos]
                    assert payloads == sorted(payloads)
        gateway.stop()
        forget_runs()
