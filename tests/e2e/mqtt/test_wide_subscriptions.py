"""Subscriptions wider than what a line of the ACL file allows bring the same as with Mosquitto."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers import Broker, Gateway, Mosquitto
from tests.support.mqtt_wire import Gate

pytestmark = pytest.mark.penstock_only("penstock beside Mosquitto, with the same ACL file")

ACL = """
topic write #
pattern read a/#
pattern read c/+
pattern read end
pattern deny a/%c
pattern deny a/%c/#
"""
TOPICS = ("a/me", "a/me/1", "a/you", "a", "b", "c/1", "c/1/2", "d/c/1", "end")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Broker]]:
    folder = tmp_path_factory.mktemp("wide")
    rules: Path = folder / "acl"
    rules.write_text(ACL)
    with (
        Gateway(folder / "penstock", settings={"mqtt.acl_file": str(rules)}) as gateway,
        Mosquitto(folder / "mosquitto", options=(f"acl_file {rules}",)) as mosquitto,
    ):
        yield [gateway, mosquitto]


def brought(broker: Broker, version: int, topic_filter: str, qos: int) -> list[str]:
    gate = Gate(broker.mqtt_port, version)
    try:
        sub, pub = gate.connect("me"), gate.connect("p")
        own = [] if topic_filter in ("#", "+/#", "$share/g/#") else [("end", qos)]
        assert sub.subscribe((topic_filter, qos), *own) == [qos] * (1 + len(own))
        for topic in TOPICS:
            pub.publish(topic)
        found = [sub.message().topic]
        while found[-1] != "end":
            found.append(sub.message().topic)
        return found
    finally:
        gate.close()


@pytest.mark.parametrize("version", [4, 5])
def test_each_filter_brings_what_it_brings_with_mosquitto(brokers: list[Broker], version: int) -> None:
    ours, theirs = brokers
    for topic_filter in ("#", "+/#", "a/#", "a/+", "+/me", "c/#", "+/+", "$share/g/#"):
        for qos in (0, 1):
            expected = brought(theirs, version, topic_filter, qos)
            assert sorted(brought(ours, version, topic_filter, qos)) == sorted(expected), (topic_filter, qos)


def test_history_is_looked_at_as_well(brokers: list[Broker]) -> None:
    gate = Gate(brokers[0].mqtt_port, 5)
    pub = gate.connect("p")
    for topic in TOPICS:
        pub.published(topic, qos=1)
    past = gate.connect("me")
    assert past.subscribe(("$replay/-1h/#", 0)) == [0]
    found = [past.message().topic]
    while found[-1] != "$replay/end":
        found.append(past.message().topic)
    gate.close()
    assert set(found) == {"a/you", "a", "c/1", "end", "$replay/end"}
