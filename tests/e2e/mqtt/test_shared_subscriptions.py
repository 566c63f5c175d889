"""One shared subscription whose members are paho, MQTT.js and mosquitto_sub."""

from __future__ import annotations

import shutil

import pytest

from tests.e2e.mqtt.mqtt_clients import Client, connected
from tests.support.mosquitto_clients import received, subscriber
from tests.support.node_programs import mqtt_js
from tests.support.node_programs import packages as packages

pytestmark = [
    pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="apt-get install mosquitto-clients"),
]


@pytest.mark.usefixtures("packages")
def test_each_message_goes_to_exactly_one_of_four_clients(mqtt_port: int, unique: str) -> None:
    topic = f"$share/workers/{unique}/#"
    with (
        connected(mqtt_port, version=5) as five,
        connected(mqtt_port, version=4) as four,
        mqtt_js(mqtt_port, topic) as js,
        subscriber(mqtt_port, "mqttv311", "-q", "1", "-t", topic, "-F", "%p") as mosquitto,
        connected(mqtt_port, version=5) as publisher,
    ):
        five.subscribe(topic, 1)
        four.subscribe(topic, 2)
        for i in range(200):
            publisher.publish(f"{unique}/{i % 7}", str(i).encode(), 1)
        got = [p.decode() for client in (five, four) for p in client.payloads(50)]
        got += received(mosquitto, 50)
        assert js.stdout is not None
        got += [js.stdout.readline().strip() for _ in range(50)]
        assert sorted(map(int, got)) == list(range(200))
        assert five.quiet() and four.quiet()


def test_a_member_that_dies_leaves_its_messages_to_the_others(mqtt_port: int, unique: str) -> None:
    topic = f"$share/workers/{unique}"
    with connected(mqtt_port, version=5) as stays, connected(mqtt_port, version=5) as publisher:
        stays.subscribe(topic, 1)
        dies = Client(mqtt_port, version=5)
        dies.paho.manual_ack_set(True)
        dies.subscribe(topic, 1)
        for i in range(20):
            publisher.publish(unique, str(i).encode(), 1)
        lost = [int(p) for p in dies.payloads(10)]
        kept = [int(p) for p in stays.payloads(10)]
        dies.drop()
        assert [int(p) for p in stays.payloads(10)] == lost
        assert sorted(kept + lost) == list(range(20)) and stays.quiet()
