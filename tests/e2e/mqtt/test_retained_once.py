"""A message that is retained while a subscription's retained messages are on their way comes once."""

from __future__ import annotations

import pytest

from tests.support.brokers import Broker
from tests.support.mqtt_wire import Gate, props


@pytest.mark.penstock_only("others copy what is retained when they handle SUBSCRIBE")
def test_a_message_retained_during_the_walk_comes_once(broker: Broker, unique: str) -> None:
    """The client takes one message at a time, so what is retained of the other topics waits for it."""
    gate = Gate(broker.mqtt_port, 5)
    try:
        pub = gate.connect()
        topics = [f"{unique}/{i}" for i in range(5)]
        for topic in topics:
            pub.published(topic, b"old", retain=True)
        sub = gate.subscriber(f"{unique}/+", block=b"", props=props(receive_maximum=1))
        first = sub.message()
        for topic in topics:
            pub.published(topic, b"new", retain=True)
        pub.published(f"{unique}/end", b"end")
        found = [(first.topic, first.payload, first.retain)]
        while found[-1][1] != b"end":
            assert len(found) <= 10, found
            sub.puback(first.packet_id)
            first = sub.message()
            found.append((first.topic, first.payload, first.retain))
        news = sorted(one for one in found if one[1] == b"new")
        assert news == [(topic, b"new", False) for topic in topics]
        # One that waits for the first to be acknowledged was read already; the others were replaced.
        assert 1 <= [payload for _, payload, _ in found].count(b"old") <= 2
    finally:
        gate.close()
