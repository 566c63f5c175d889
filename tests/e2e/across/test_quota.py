"""A vhost over its backlog quota: its publishers wait and are told, consumers and other vhosts go on."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import paho.mqtt.client as paho
import pika
import pika.exceptions
import pika.spec
import pytest

from tests.support.brokers import Gateway
from tests.support.management import SETTINGS, Api

pytestmark = [pytest.mark.penstock_only("RabbitMQ has no such limit"), pytest.mark.timeout(400)]

LIMIT_S = 90.0
QUOTA = 4 << 20
BODY = bytes(range(256)) * 400


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    settings = {**SETTINGS, "log.segment_bytes": "1MiB", "http.listen": "127.0.0.1:0"}
    with Gateway(tmp_path / "gateway", settings=settings) as running:
        yield running


def connect(gateway: Gateway, vhost: str = "/") -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, vhost, heartbeat=0)
    )


class Publisher(threading.Thread):
    """Publishes one message after the other, each when the one before is confirmed, until `stop`."""

    def __init__(self, gateway: Gateway, vhost: str) -> None:
        super().__init__(daemon=True)
        self.sent = self.confirmed = 0
        self.heard: list[str] = []
        self._stopping = False
        self._connection = connect(gateway, vhost)
        self._connection.add_on_connection_blocked_callback(
            lambda _, frame: self.heard.append(frame.method.reason)
        )
        self._connection.add_on_connection_unblocked_callback(lambda *_: self.heard.append("over"))
        channel = self._connection.channel()
        channel.queue_declare("q", durable=True)
        # Beneath the blocking face, which waits for a confirm without telling what else it hears.
        self._channel = channel._impl
        self._channel.confirm_delivery(self._on_confirm, lambda _: None)
        self.start()

    def _on_confirm(self, frame: Any) -> None:
        assert isinstance(frame.method, pika.spec.Basic.Ack)
        self.confirmed = frame.method.delivery_tag

    def run(self) -> None:
        while not self._stopping or self.confirmed < self.sent:
            if self.confirmed == self.sent:
                self._channel.basic_publish("", "q", BODY, pika.BasicProperties(delivery_mode=2))
                self.sent += 1
            self._connection.process_data_events(0.01)
        self._connection.close()

    def stop(self) -> None:
        self._stopping = True
        self.join(LIMIT_S)
        assert not self.is_alive()


def wait(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"no {what} in {LIMIT_S} s"
        time.sleep(0.02)


def full(gateway: Gateway) -> bool:
    return "publishers wait: vhost 'small' holds" in gateway.log_text()


def test_publishers_of_a_full_vhost_wait_until_it_is_consumed(gateway: Gateway) -> None:
    api = Api(gateway)
    for vhost in ("small", "other"):
        assert api.status("PUT", f"vhosts/{vhost}") == 201
    assert api.status("PUT", "vhost-limits/small/max-backlog-bytes", {"value": QUOTA}) == 204
    limited, free = Publisher(gateway, "small"), Publisher(gateway, "other")
    wait(lambda: limited.heard, "connection.blocked")
    assert limited.heard == ["vhost 'small' holds more than its max-backlog-bytes"]
    assert limited.confirmed * len(BODY) > QUOTA * 3 // 4
    stopped, going = limited.confirmed, free.confirmed
    wait(lambda: free.confirmed > going + 20, "confirms in the other vhost")
    assert limited.confirmed <= stopped + 1, "what was read before it was full"
    answer = httpx.post(
        f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/small/queues/q/messages",
        content=b"{}",
        auth=("guest", "guest"),
        timeout=60,
    )
    assert answer.status_code == 429 and "max-backlog-bytes" in answer.text, answer.text
    assert (answer.json()["code"], answer.json()["retryable"]) == ("quota", True)
    assert int(answer.headers["retry-after"]) * 1000 == answer.json()["retry_after_ms"]
    # The gateway still accepts requests that free space.
    base = f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/small/"
    with httpx.Client(base_url=base, auth=("guest", "guest"), timeout=60) as http:
        (message,) = http.post("queues/q/pull", json={"max_messages": 1}).json()["messages"]
        done = {"ack": [{"queue": "q", "handles": [message["handle"]]}]}
        assert http.post("transactions", json=done).status_code == 200
        both = {**done, "publish": [{"queue": "q", "value": "x"}]}
        assert http.post("transactions", json=both).status_code == 429
    # A new publisher waits with its first message.
    late = Publisher(gateway, "small")
    with connect(gateway, "small") as connection:
        channel = connection.channel()
        got = 0
        for method, _, body in channel.consume("q", inactivity_timeout=LIMIT_S):
            assert body == BODY, "consumers go on"
            channel.basic_ack(method.delivery_tag)
            got += 1
            if got == stopped - 1:  # one was pulled above
                break
    wait(lambda: limited.heard[-1] == "over", "connection.unblocked")
    wait(lambda: limited.confirmed > stopped + 1 and late.confirmed > 1, "more confirms")
    for publisher in (limited, free, late):
        publisher.stop()
    api.close()


def test_an_mqtt_publisher_of_a_full_vhost_is_not_read(gateway: Gateway) -> None:
    api = Api(gateway)
    assert api.status("PUT", "vhosts/small") == 201
    with connect(gateway, "small") as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "amq.topic", "#")
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.username_pw_set("small:guest", "guest")
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.loop_start()
    client.publish("a", BODY, qos=1).wait_for_publish(LIMIT_S)
    assert api.status("PUT", "vhost-limits/small/max-backlog-bytes", {"value": 1000}) == 204
    wait(lambda: full(gateway), "full vhost")
    waits = client.publish("a", BODY, qos=1)
    assert api.status("GET", "vhosts/small") == 200
    assert not waits.is_published()
    assert api.status("DELETE", "vhost-limits/small/max-backlog-bytes") == 204
    waits.wait_for_publish(LIMIT_S)
    assert waits.is_published()
    client.disconnect()
    client.loop_stop()
    api.close()


def test_a_vhost_over_the_other_quota_refuses_what_is_published_until_it_is_consumed(
    gateway: Gateway,
) -> None:
    api = Api(gateway)
    assert api.status("PUT", "vhosts/small") == 201
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.username_pw_set("small:guest", "guest")
    answers: queue.SimpleQueue[int] = queue.SimpleQueue()
    client.on_publish = lambda client, data, mid, reason, properties: answers.put(reason.value)
    with connect(gateway, "small") as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "amq.topic", "a")
        channel.basic_publish("", "q", b"taken")
        client.connect("127.0.0.1", gateway.mqtt_port)
        client.loop_start()
        client.publish("a", b"taken", qos=1)
        assert answers.get(timeout=LIMIT_S) == 0
        assert api.status("PUT", "vhost-limits/small/max-backlog-bytes-reject", {"value": 0}) == 204
        wait(lambda: "publishes are refused: vhost 'small' holds" in gateway.log_text(), "refusals")
        for exchange, key in (("", "q"), ("amq.topic", "a"), ("amq.direct", "nobody")):
            with pytest.raises(pika.exceptions.NackError):
                channel.basic_publish(exchange, key, b"refused")
        for topic in ("a", "nobody", "$delayed/60/a"):
            client.publish(topic, b"refused", qos=1, retain=True)
            assert answers.get(timeout=LIMIT_S) == 0x97, topic
        answer = httpx.post(
            f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/small/queues/q/messages",
            content=b"{}",
            auth=("guest", "guest"),
            timeout=60,
        )
        assert answer.status_code == 429 and "max-backlog-bytes-reject" in answer.text, answer.text
        assert [channel.basic_get("q", auto_ack=True)[2] for _ in range(3)] == [b"taken", b"taken", None]
        assert api.status("DELETE", "vhost-limits/small/max-backlog-bytes-reject") == 204
        channel.basic_publish("", "q", b"taken again")
        client.publish("a", b"taken again", qos=1)
        assert answers.get(timeout=LIMIT_S) == 0
        assert channel.basic_get("q", auto_ack=True)[2] == b"taken again"
    client.disconnect()
    client.loop_stop()
    api.close()


def test_evicted_messages_are_dead_lettered_in_order_without_loss(gateway: Gateway) -> None:
    api = Api(gateway)
    assert api.status("PUT", "vhosts/small") == 201
    assert api.status("PUT", "vhost-limits/small/max-backlog-bytes-evict", {"value": QUOTA}) == 204
    count = 120
    with connect(gateway, "small") as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("dead", durable=True)
        dlx = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("q", durable=True, arguments=dlx)
        dead: list[int] = []
        reasons: set[str] = set()

        def buried(_: Any, method: Any, properties: Any, body: bytes) -> None:
            dead.append(int(body[:8]))
            reasons.add(properties.headers["x-death"][0]["reason"])
            channel.basic_ack(method.delivery_tag)

        channel.basic_consume("dead", buried)
        for number in range(count):
            body = b"%8d" % number + BODY
            channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2))
        deadline = time.monotonic() + LIMIT_S
        # Of about 12 MB at most nine tenths of the quota stay, and what lies in the segment being written.
        while len(dead) < count - (QUOTA + (1 << 20)) // len(BODY):
            assert time.monotonic() < deadline, f"{len(dead)} were dead-lettered"
            connection.process_data_events(0.1)
        assert reasons == {"maxlen"}
        assert api.status("DELETE", "vhost-limits/small/max-backlog-bytes-evict") == 204
        left: list[int] = []
        while len(dead) + len(left) < count:
            assert time.monotonic() < deadline, f"{len(dead)} were dead-lettered, {len(left)} are left"
            method, _, body = channel.basic_get("q", auto_ack=True)
            if method:
                left.append(int(body[:8]))
            connection.process_data_events(0.01)
    assert dead + left == list(range(count))
    metrics = httpx.get(f"http://127.0.0.1:{gateway.ports['metrics']}/metrics", timeout=60).text
    assert f'penstock_vhost_evicted_messages_total{{vhost="small"}} {len(dead)}\n' in metrics
    api.close()
