"""Rate quotas with real clients: publishers are slowed and lose nothing; HTTP is told when to come again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import httpx
import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.support.brokers import Gateway
from tests.support.data_plane import SERVED
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has no rate quotas")

RATE = 50
MESSAGES = 200
"""A rested bucket has 100, so the rest takes two seconds, and slow publishers are still too fast for it."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("rates"), settings=SERVED) as running:
        yield running


@pytest.fixture
def api(gateway: Gateway) -> Iterator[Api]:
    api = Api(gateway)
    yield api
    for name in ("max-message-rate", "max-byte-rate"):
        api.status("DELETE", f"user-limits/guest/{name}")
        api.status("DELETE", f"vhost-limits/%2F/{name}")
    api.close()


def connect(gateway: Gateway) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, heartbeat=600))


def by_amqp(gateway: Gateway) -> None:
    with connect(gateway) as connection:
        channel = connection.channel()
        for number in range(MESSAGES):
            channel.basic_publish("amq.topic", "rated", str(number).encode())
        for _ in range(2):  # the first may come in the read with the last of them, which is not waited for
            channel.queue_declare("rated", passive=True)


def by_mqtt(gateway: Gateway) -> None:
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.username_pw_set("guest", "guest")
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.loop_start()
    sent = [client.publish("rated", str(number), qos=1) for number in range(MESSAGES)]
    for one in sent:
        one.wait_for_publish(120)
    client.disconnect()
    client.loop_stop()


def by_http(gateway: Gateway) -> None:
    base = f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/"
    refused = 0
    with httpx.Client(base_url=base, auth=("guest", "guest"), timeout=60) as http:
        sent = 0
        while sent < MESSAGES:
            many = [{"value": str(number), "routing_key": "rated"} for number in range(sent, sent + 50)]
            answer = http.post("exchanges/amq.topic/messages", json={"messages": many})
            if answer.status_code == 429:
                assert answer.json()["code"] == "rate"
                refused += 1
                time.sleep(int(answer.headers["retry-after"]))
                continue
            assert answer.status_code == 200, answer.text
            sent += 50
    assert refused


@pytest.mark.parametrize(
    ("way", "scope"),
    [(by_amqp, "user-limits/guest"), (by_mqtt, "vhost-limits/%2F"), (by_http, "user-limits/guest")],
)
def test_publishers_are_slowed_and_lose_nothing(
    gateway: Gateway, api: Api, way: Callable[[Gateway], None], scope: str
) -> None:
    with connect(gateway) as connection:
        channel = connection.channel()
        channel.queue_declare("rated")
        channel.queue_purge("rated")
        channel.queue_bind("rated", "amq.topic", "rated")
        before = slowed(gateway)
        assert api.status("PUT", f"{scope}/max-message-rate", {"value": RATE}) == 204
        begun = time.monotonic()
        way(gateway)
        # One read may take the bucket below zero, and what came last is not waited for.
        assert time.monotonic() - begun > (MESSAGES - 2 * RATE) / RATE / 2
        bodies = [channel.basic_get("rated", auto_ack=True)[2] for _ in range(MESSAGES)]
        assert bodies == [str(number).encode() for number in range(MESSAGES)]
    assert slowed(gateway) > before


def slowed(gateway: Gateway) -> float:
    page = httpx.get(f"http://127.0.0.1:{gateway.ports['metrics']}/metrics", timeout=60).text
    lines = [line for line in page.splitlines() if line.startswith("penstock_publishers_slowed_total{")]
    assert len(lines) == 2
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_a_publisher_over_its_byte_rate_is_in_flow_until_the_limit_is_removed(
    gateway: Gateway, api: Api
) -> None:
    assert api.status("PUT", "vhost-limits/%2F/max-byte-rate", {"value": 1}) == 204
    published = threading.Event()

    def publish() -> None:
        with connect(gateway) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for _ in range(3):
                channel.basic_publish("amq.topic", "bytes", b"x" * 5000)
            published.set()

    thread = threading.Thread(target=publish)
    thread.start()
    deadline = time.monotonic() + 120
    while not any(one["state"] == "flow" for one in api.get("connections")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not published.is_set()
    assert api.status("DELETE", "vhost-limits/%2F/max-byte-rate") == 204
    thread.join(120)
    assert published.is_set()
