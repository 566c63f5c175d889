"""Data folders of released versions: one is written, kept as an archive, and read by every later version.

    python -m tests.support.older_folders

writes that of this version to tests/golden/folders. It has something of each kind that a folder keeps:
messages of each protocol that wait, one that was delivered, one that is delayed, one that is retained, a
session, a stream with the place of its subscription, the last values of a table, a user.
"""

from __future__ import annotations

import tarfile
import tempfile
from contextlib import closing
from pathlib import Path

import httpx
import paho.mqtt.client as paho
import pika

import penstock
import penstock.sync
from penstock.testing import Gateway
from tests.support.limits import LIMIT_S
from tests.support.mqtt_devices import Device

FOLDERS = Path(__file__).parents[1] / "golden/folders"
SETTINGS = {"management.listen": "127.0.0.1:0", "mqtt.session_expiry_max_s": "4294967294"}
"""A session of a folder outlives the versions."""

_CENTURY_S = 90 * 365 * 86_400.0


def write(gateway: Gateway) -> None:
    """Fill an empty folder."""
    with httpx.Client(auth=("guest", "guest"), timeout=LIMIT_S) as http:
        management = f"http://127.0.0.1:{gateway.listener('management')}/api"
        user = {"password": "wonderland", "tags": "monitoring"}
        http.put(f"{management}/users/alice", json=user).raise_for_status()
        rights = dict.fromkeys(("configure", "write", "read"), ".*")
        http.put(f"{management}/permissions/%2F/alice", json=rights).raise_for_status()
    with closing(pika.BlockingConnection(pika.URLParameters(gateway.amqp_url))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True, arguments={"x-max-priority": 3})
        channel.queue_bind("orders", "amq.topic", "plant.#")
        for text in (b"settled", b"delivered", b"waiting"):
            kept = pika.BasicProperties(delivery_mode=2, headers={"number": 7}, message_id=text.decode())
            channel.basic_publish("amq.topic", "plant.oslo", text, kept)
        settled = channel.basic_get("orders")[0]
        channel.basic_ack(settled.delivery_tag)
        channel.basic_get("orders")
    with _device(gateway, "reader") as reader:
        reader.subscribe("plant/#", 1)
    with _device(gateway, "publisher") as publisher:
        publisher.publish("plant/oslo/door", "open", 1, retain=True)
    with penstock.sync.connect(gateway.url) as client:
        with client.producer("readings") as producer:
            for number in range(3):
                producer.send(b"%d" % number, key="sensor", headers={"unit": "C"})
        with client.subscribe("readings", "first", start="earliest") as consumer:
            message = consumer.receive(timeout_s=LIMIT_S)
            assert message is not None
            consumer.ack(message)
        with client.producer("prices") as producer:
            for key, value in (("apple", b"1"), ("pear", b"2"), ("apple", b"3")):
                producer.send(value, key=key)
        with client.producer("reminders") as producer:
            producer.send(b"in a century", deliver_after_s=_CENTURY_S, delay_id="century")


def check(gateway: Gateway) -> None:
    """Whether everything is there, with what a gateway adds to it. Raises AssertionError."""
    alice = gateway.amqp_url.replace("guest:guest", "alice:wonderland")
    with closing(pika.BlockingConnection(pika.URLParameters(alice))) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True, arguments={"x-max-priority": 3})
        found = [channel.basic_get("orders") for _ in range(4)]
        there = [one for one in found if one[0] is not None]
        assert [one[2] for one in there] == [b"delivered", b"waiting", b"open"]
        assert there[0][0].redelivered and there[0][1].headers == {"number": 7}
    with _device(gateway, "reader") as reader:
        assert reader.take(1) == [("plant/oslo/door", "open")]
    with _device(gateway, "late") as late:
        late.subscribe("plant/+/door", 1)
        message = late.got.get(timeout=LIMIT_S)
        assert (message.payload, message.retain) == (b"open", True)
    with penstock.sync.connect(gateway.url) as client:
        with client.subscribe("readings", "first") as consumer:
            left = [consumer.receive(timeout_s=LIMIT_S) for _ in range(2)]
            assert [(one.value, one.key, one.headers["unit"]) for one in left if one is not None] == [
                (b"1", "sensor", "C"),
                (b"2", "sensor", "C"),
            ]
        with client.table("prices") as prices:
            assert dict(prices) == {"apple": b"3", "pear": b"2"}
    with httpx.Client(auth=("guest", "guest"), timeout=LIMIT_S) as http:
        delayed = http.get(f"{gateway.http_url}/v1/vhosts/%2F/delayed").raise_for_status().json()
        assert [(one["routing_key"], one["size"]) for one in delayed["messages"]] == [("reminders", 12)], (
            delayed
        )


def _device(gateway: Gateway, name: str) -> Device:
    return Device(gateway.mqtt_port, name, version=paho.MQTTv311)


def record() -> Path:
    """Write the folder of this version; its archive."""
    archive = FOLDERS / f"{penstock.__version__}.tar.xz"
    FOLDERS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as text:
        data = Path(text) / "data"
        with Gateway(data, settings=SETTINGS) as gateway:
            write(gateway)
        with tarfile.open(archive, "w:xz") as tar:
            tar.add(data, "data")
    return archive


if __name__ == "__main__":
    made = record()
    print(f"{made}: {made.stat().st_size} bytes")
