"""paho over MQTT 3.1.1 and 5: quality of service, retained, wills, sessions, wildcards, keep-alive,
takeover.
"""

from __future__ import annotations

import socket
import time

import pytest

from bench.load_mqtt import packet, utf8
from tests.e2e.mqtt.mqtt_clients import Client, connected
from tests.support.limits import LIMIT_S

both_versions = pytest.mark.parametrize("version", [4, 5], ids=["v3.1.1", "v5"])
each_qos = pytest.mark.parametrize("qos", [0, 1, 2])


@both_versions
class TestDelivery:
    @pytest.mark.parametrize("published", [0, 1, 2])
    @pytest.mark.parametrize("subscribed", [0, 1, 2])
    def test_the_lower_quality_of_service_counts(
        self, mqtt_port: int, unique: str, version: int, published: int, subscribed: int
    ) -> None:
        with connected(mqtt_port, version=version) as client:
            assert client.subscribe(unique, subscribed) == subscribed
            client.publish(unique, b"hello", published)
            message = client.next()
            assert (message.payload, message.topic, message.qos) == (
                b"hello",
                unique,
                min(published, subscribed),
            )
            assert not message.retain and not message.dup

    @each_qos
    def test_order_is_kept(self, mqtt_port: int, unique: str, version: int, qos: int) -> None:
        with (
            connected(mqtt_port, version=version) as subscriber,
            connected(mqtt_port, version=version) as publisher,
        ):
            subscriber.subscribe(unique, qos)
            for i in range(300):
                publisher.paho.publish(unique, str(i), qos)
            assert [int(payload) for payload in subscriber.payloads(300)] == list(range(300))
            assert subscriber.quiet()

    @each_qos
    @pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 300_000, 900_000])
    def test_payloads_of_any_size(
        self, mqtt_port: int, unique: str, version: int, qos: int, size: int
    ) -> None:
        payload = bytes(i * 11 % 256 for i in range(size))
        with connected(mqtt_port, version=version) as client:
            client.subscribe(unique, qos)
            client.publish(unique, payload, qos)
            assert client.next().payload == payload

    def test_a_publisher_gets_its_own_messages_and_every_subscriber_a_copy(
        self, mqtt_port: int, unique: str, version: int
    ) -> None:
        clients = [Client(mqtt_port, version=version) for _ in range(5)]
        for client in clients:
            client.subscribe(f"{unique}/#", 1)
        clients[0].publish(f"{unique}/x", b"all", 1)
        assert [client.next().payload for client in clients] == [b"all"] * 5
        for client in clients:
            client.close()

    def test_unsubscribe_stops_delivery(self, mqtt_port: int, unique: str, version: int) -> None:
        with connected(mqtt_port, version=version) as client:
            client.subscribe(f"{unique}/a")
            client.subscribe(f"{unique}/b")
            client.unsubscribe(f"{unique}/a")
            client.publish(f"{unique}/a", b"a")
            client.publish(f"{unique}/b", b"b")
            assert client.payloads(1) == [b"b"]
            assert client.quiet()

    def test_subscribing_again_replaces_the_quality_of_service(
        self, mqtt_port: int, unique: str, version: int
    ) -> None:
        with connected(mqtt_port, version=version) as client:
            client.subscribe(unique, 2)
            client.subscribe(unique, 0)
            client.publish(unique, b"x", 2)
            assert client.next().qos == 0
            assert client.quiet()


@both_versions
class TestWildcards:
    @pytest.mark.parametrize(
        ("pattern", "matching"),
        [
            ("{0}/+/c", ["{0}//c", "{0}/b/c"]),
            ("{0}/#", ["{0}", "{0}/", "{0}//c", "{0}/b", "{0}/b/c", "{0}/b/c/d"]),
            ("{0}/+", ["{0}/", "{0}/b"]),
            ("+/{0}", ["x/{0}"]),
            ("{0}/b/c/d", ["{0}/b/c/d"]),
            ("{0}/+/+/d", ["{0}/b/c/d"]),
            ("{0}/b/#", ["{0}/b", "{0}/b/c", "{0}/b/c/d"]),
        ],
    )
    def test_filters(
        self, mqtt_port: int, unique: str, version: int, pattern: str, matching: list[str]
    ) -> None:
        topics = ["{0}", "{0}/", "{0}//c", "{0}/b", "{0}/b/c", "{0}/b/c/d", "x/{0}"]
        with connected(mqtt_port, version=version) as client:
            client.subscribe(pattern.format(unique))
            client.subscribe(f"{unique}-end")
            for topic in topics:
                client.publish(topic.format(unique), b"x")
            client.publish(f"{unique}-end", b"x")
            got = []
            while (topic := client.next().topic) != f"{unique}-end":
                got.append(topic)
            assert got == [topic.format(unique) for topic in matching]

    def test_a_leading_wildcard_does_not_match_dollar_topics(
        self, mqtt_port: int, unique: str, version: int
    ) -> None:
        with connected(mqtt_port, version=version) as client:
            client.subscribe("#")
            client.subscribe("+/" + unique)
            client.publish(f"$private/{unique}", b"hidden")
            client.publish(f"{unique}/end", b"end")
            while True:
                message = client.next()
                assert not message.topic.startswith("$"), message.topic
                if message.topic == f"{unique}/end":
                    break

    def test_a_dollar_topic_is_matched_by_name(self, mqtt_port: int, unique: str, version: int) -> None:
        with connected(mqtt_port, version=version) as client:
            client.subscribe(f"$private/{unique}/#")
            client.publish(f"$private/{unique}/a", b"seen")
            assert client.payloads(1) == [b"seen"]

    def test_many_subscriptions(self, mqtt_port: int, unique: str, version: int) -> None:
        with connected(mqtt_port, version=version) as client:
            for i in range(500):
                client.subscribe(f"{unique}/{i}/+", i % 3)
            for i in (0, 77, 499):
                client.publish(f"{unique}/{i}/x", str(i), 1)
            assert client.payloads(3) == [b"0", b"77", b"499"]
            assert client.quiet()


@both_versions
class TestRetained:
    def test_set_replace_and_delete(self, mqtt_port: int, unique: str, version: int) -> None:
        with connected(mqtt_port, version=version) as publisher:
            publisher.publish(unique, b"old", 1, retain=True)
            publisher.publish(unique, b"new", 1, retain=True)
            with connected(mqtt_port, version=version) as late:
                late.subscribe(unique, 1)
                message = late.next()
                assert (message.payload, message.retain, message.qos) == (b"new", True, 1)
                publisher.publish(unique, b"live", 1, retain=True)
                message = late.next()
                assert (message.payload, message.retain) == (b"live", False)
                publisher.publish(unique, b"", 1, retain=True)
                assert late.next().payload == b""
            with connected(mqtt_port, version=version) as later:
                later.subscribe(unique, 1)
                assert later.quiet()

    def test_a_wildcard_subscription_gets_all_that_match(
        self, mqtt_port: int, unique: str, version: int
    ) -> None:
        topics = {f"{unique}/{i}/t": str(i).encode() for i in range(50)}
        with connected(mqtt_port, version=version) as publisher:
            for topic, payload in topics.items():
                publisher.publish(topic, payload, 1, retain=True)
            publisher.publish(f"{unique}/other", b"no", 1, retain=True)
            with connected(mqtt_port, version=version) as late:
                late.subscribe(f"{unique}/+/t", 1)
                got = [late.next() for _ in topics]
                assert {message.topic: message.payload for message in got} == topics
                assert late.quiet()
            for topic in [*topics, f"{unique}/other"]:
                publisher.publish(topic, b"", 1, retain=True)

    def test_subscribing_again_brings_it_again(self, mqtt_port: int, unique: str, version: int) -> None:
        with connected(mqtt_port, version=version) as client:
            client.publish(unique, b"kept", 1, retain=True)
            for _ in range(2):
                client.subscribe(unique, 0)
                message = client.next()
                assert (message.payload, message.retain, message.qos) == (b"kept", True, 0)
            client.publish(unique, b"", 1, retain=True)


@both_versions
class TestWills:
    @each_qos
    def test_a_vanished_client_leaves_its_will(
        self, mqtt_port: int, unique: str, version: int, qos: int
    ) -> None:
        with connected(mqtt_port, version=version) as watcher:
            watcher.subscribe(unique, 2)
            will = {"topic": unique, "payload": b"gone", "qos": qos, "retain": False}
            Client(mqtt_port, version=version, will=will).drop()
            message = watcher.next()
            assert (message.payload, message.qos) == (b"gone", qos)

    def test_a_client_that_disconnects_takes_its_will_along(
        self, mqtt_port: int, unique: str, version: int
    ) -> None:
        with connected(mqtt_port, version=version) as watcher:
            watcher.subscribe(unique, 1)
            Client(mqtt_port, version=version, will={"topic": unique, "payload": b"gone", "qos": 1}).close()
            assert watcher.quiet()

    def test_a_retained_will(self, mqtt_port: int, unique: str, version: int) -> None:
        with connected(mqtt_port, version=version) as watcher:
            watcher.subscribe(unique, 1)
            will = {"topic": unique, "payload": b"gone", "qos": 1, "retain": True}
            Client(mqtt_port, version=version, will=will).drop()
            watcher.next()
            with connected(mqtt_port, version=version) as late:
                late.subscribe(unique, 1)
                message = late.next()
                assert (message.payload, message.retain) == (b"gone", True)
            watcher.publish(unique, b"", 1, retain=True)

    def test_a_silent_client_is_given_up_after_its_keep_alive(
        self, mqtt_port: int, unique: str, version: int
    ) -> None:
        """The client says it will speak every second and does not; its will is due after 1.5 s."""
        level = bytes([version, 0x06]) + b"\0\1" + (b"\0" if version == 5 else b"")
        will = (b"\0" if version == 5 else b"") + utf8(unique) + utf8("silent")
        with connected(mqtt_port, version=version) as watcher:
            watcher.subscribe(unique)
            with socket.create_connection(("127.0.0.1", mqtt_port), timeout=LIMIT_S) as silent:
                began = time.monotonic()
                silent.sendall(packet(0x10, utf8("MQTT") + level + utf8(unique) + will))
                assert watcher.next().payload == b"silent"
                assert time.monotonic() - began >= 1.5

    def test_pings_keep_an_idle_client(self, mqtt_port: int, unique: str, version: int) -> None:
        with connected(mqtt_port, version=version, keepalive_s=2) as client:
            client.subscribe(unique)
            time.sleep(5)  # the passing of time is what is tested
            assert client.disconnects.empty()
            client.publish(unique, b"alive")
            assert client.payloads(1) == [b"alive"]


def lasting(version: int) -> dict[str, object]:
    """Options of a session that outlives its connection."""
    return {"version": version, "clean": False, **({"expiry_s": 3600} if version == 5 else {})}


@both_versions
class TestSessions:
    @pytest.mark.parametrize("qos", [1, 2])
    def test_a_persistent_session_collects_while_its_client_is_away(
        self, mqtt_port: int, unique: str, version: int, qos: int
    ) -> None:
        with connected(mqtt_port, unique, **lasting(version)) as client:
            assert not client.session_present
            client.subscribe(f"{unique}/#", qos)
        with connected(mqtt_port, version=version) as publisher:
            for i in range(100):
                publisher.publish(f"{unique}/a", str(i), qos)
        with connected(mqtt_port, unique, **lasting(version)) as client:
            assert client.session_present
            assert [int(payload) for payload in client.payloads(100)] == list(range(100))
            client.publish(f"{unique}/b", b"live", qos)
            assert client.payloads(1) == [b"live"]
        self.forget(mqtt_port, unique, version)

    def test_a_clean_session_collects_nothing(self, mqtt_port: int, unique: str, version: int) -> None:
        with connected(mqtt_port, unique, version=version) as client:
            client.subscribe(unique, 1)
        with connected(mqtt_port, version=version) as publisher:
            publisher.publish(unique, b"missed", 1)
        with connected(mqtt_port, unique, version=version) as client:
            assert not client.session_present
            client.subscribe(unique, 1)
            assert client.quiet()

    def test_connecting_clean_forgets_the_session(self, mqtt_port: int, unique: str, version: int) -> None:
        with connected(mqtt_port, unique, **lasting(version)) as client:
            client.subscribe(unique, 1)
        self.forget(mqtt_port, unique, version)
        with connected(mqtt_port, unique, **lasting(version)) as client:
            assert not client.session_present
            client.publish(unique, b"x", 1)
            assert client.quiet()
        self.forget(mqtt_port, unique, version)

    def test_the_same_client_id_takes_over(
        self, mqtt_port: int, unique: str, version: int, broker_name: str
    ) -> None:
        first = Client(mqtt_port, unique, **lasting(version))
        first.subscribe(unique, 1)
        second = Client(mqtt_port, unique, **lasting(version))
        assert second.session_present
        reason = first.disconnects.get(timeout=LIMIT_S)
        if version == 5 and broker_name != "mosquitto":  # which closes before it has sent the reason
            assert reason.value == 0x8E
        with connected(mqtt_port, version=version) as publisher:
            publisher.publish(unique, b"to the second", 1)
        assert second.payloads(1) == [b"to the second"]
        assert first.messages.empty()
        first.end()
        second.close()
        self.forget(mqtt_port, unique, version)

    def test_an_unacknowledged_message_comes_again_with_dup(
        self, mqtt_port: int, unique: str, version: int
    ) -> None:
        """A client that vanishes before its PUBACK gets the message again when it is back."""
        first = Client(mqtt_port, unique, **lasting(version))
        first.paho.manual_ack_set(True)
        first.subscribe(unique, 1)
        with connected(mqtt_port, version=version) as publisher:
            publisher.publish(unique, b"twice", 1)
        message = first.next()
        assert not message.dup
        first.drop()
        with connected(mqtt_port, unique, **lasting(version)) as second:
            again = second.next()
            assert (again.payload, again.dup, again.mid) == (b"twice", True, message.mid)
            assert second.quiet()
        self.forget(mqtt_port, unique, version)

    def forget(self, port: int, client_id: str, version: int) -> None:
        """End a persistent session."""
        with connected(port, client_id, version=version) as client:
            assert not client.session_present


class TestVersion5:
    def test_properties_arrive_unchanged(self, mqtt_port: int, unique: str) -> None:
        with connected(mqtt_port, version=5) as client:
            client.subscribe(unique, 1)
            client.publish(
                unique,
                b"{}",
                1,
                ContentType="application/json",
                ResponseTopic="answers/1",
                CorrelationData=b"\x00\xff\x01",
                PayloadFormatIndicator=1,
                UserProperty=[("a", "1"), ("b", "2"), ("a", "3")],
                MessageExpiryInterval=100,
            )
            got = client.next().properties
        assert (got.ContentType, got.ResponseTopic, got.CorrelationData) == (
            "application/json",
            "answers/1",
            b"\x00\xff\x01",
        )
        assert got.PayloadFormatIndicator == 1
        assert got.UserProperty == [("a", "1"), ("b", "2"), ("a", "3")]
        assert 0 < got.MessageExpiryInterval <= 100

    def test_no_local(self, mqtt_port: int, unique: str) -> None:
        with connected(mqtt_port, version=5) as client, connected(mqtt_port, version=5) as other:
            client.subscribe(unique, 1, noLocal=True)
            client.publish(unique, b"own", 1)
            other.publish(unique, b"other's", 1)
            assert client.payloads(1) == [b"other's"]
            assert client.quiet()

    def test_retain_as_published(self, mqtt_port: int, unique: str) -> None:
        with connected(mqtt_port, version=5) as client:
            client.subscribe(unique, 1, retainAsPublished=True)
            client.publish(unique, b"x", 1, retain=True)
            assert client.next().retain
            client.publish(unique, b"", 1, retain=True)

    @pytest.mark.parametrize(("handling", "copies"), [(0, 2), (1, 1), (2, 0)])
    def test_retain_handling(self, mqtt_port: int, unique: str, handling: int, copies: int) -> None:
        with connected(mqtt_port, version=5) as client:
            client.publish(unique, b"kept", 1, retain=True)
            for _ in range(2):
                client.subscribe(unique, 1, retainHandling=handling)
            assert client.payloads(copies) == [b"kept"] * copies
            assert client.quiet()
            client.publish(unique, b"", 1, retain=True)

    def test_a_message_expires_while_it_waits(self, mqtt_port: int, unique: str) -> None:
        with connected(mqtt_port, unique, version=5, clean=False, expiry_s=600) as client:
            client.subscribe(unique, 1)
        with connected(mqtt_port, version=5) as publisher:
            publisher.publish(unique, b"short", 1, MessageExpiryInterval=1)
            publisher.publish(unique, b"long", 1, MessageExpiryInterval=600)
        time.sleep(2.1)  # the passing of time is what is tested
        with connected(mqtt_port, unique, version=5, clean=False, expiry_s=0) as client:
            message = client.next()
            assert message.payload == b"long"
            assert 500 <= message.properties.MessageExpiryInterval <= 598
            assert client.quiet()

    def test_a_session_ends_when_its_expiry_is_over(self, mqtt_port: int, unique: str) -> None:
        with connected(mqtt_port, unique, version=5, clean=False, expiry_s=1) as client:
            client.subscribe(unique, 1)
        time.sleep(2.5)  # the passing of time is what is tested
        with connected(mqtt_port, unique, version=5, clean=False, expiry_s=0) as client:
            assert not client.session_present

    def test_an_empty_client_id_is_assigned(self, mqtt_port: int) -> None:
        with connected(mqtt_port, version=5) as client:
            assert client.reason.value == 0

    def test_a_publish_nobody_subscribed_is_told(self, mqtt_port: int, unique: str) -> None:
        answers: list[int] = []
        with connected(mqtt_port, version=5) as client:
            client.paho.on_publish = lambda _, __, ___, reason, ____: answers.append(reason.value)
            client.publish(f"{unique}/nobody", b"x", 1)
            client.subscribe(unique, 1)
            client.publish(unique, b"x", 1)
            client.next()
        assert answers == [0x10, 0x00]


@pytest.mark.parametrize("level", [b"\x04MQTT", b"\x06MQIsdp"], ids=["MQTT 9", "MQIsdp 9"])
def test_an_unknown_protocol_level_is_refused(mqtt_port: int, level: bytes) -> None:
    with socket.create_connection(("127.0.0.1", mqtt_port), timeout=LIMIT_S) as s:
        s.sendall(packet(0x10, b"\0" + level + bytes([9, 2, 0, 10]) + utf8("x")))
        answer = s.recv(100)
        assert answer[:1] in (b"", b"\x20")
        if answer:
            assert answer[3] in (1, 0x84)
            assert s.recv(100) == b""
