"""Traffic retention by policy, with unmodified clients: what is kept longer than its vhost keeps anything."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paho.mqtt.client as mqtt
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.brokers import Gateway
from tests.support.management import SETTINGS, Api

pytestmark = [pytest.mark.penstock_only("RabbitMQ has no replay")]

LIMIT_S = 240.0
FILLER = bytes(range(256)) * 400


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    small = {"log.segment_bytes": "1MiB", "log.checkpoint_bytes": "1MiB", "log.traffic_retention_bytes": "0"}
    with Gateway(tmp_path / "gateway", settings={**SETTINGS, **small}) as running:
        yield running


@contextmanager
def _channel(gateway: Gateway) -> Iterator[BlockingChannel]:
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, heartbeat=0)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def _put(gateway: Gateway, path: str, body: object) -> None:
    api = Api(gateway)
    assert api.status("PUT", path, body) in (201, 204)
    api.close()


def _log_bytes(gateway: Gateway) -> int:
    return sum(path.stat().st_size for path in (gateway.data_dir / "shard-000" / "wal").glob("*.wal"))


def _push_out(gateway: Gateway, channel: BlockingChannel, exchange: str) -> None:
    """Publish what is not kept until the segments of now are behind, and rewritten."""
    filling = channel.connection.channel()  # without confirms
    for _ in range(150):
        filling.basic_publish(exchange, "nobody", FILLER)
    channel.connection.process_data_events(0)
    deadline = time.monotonic() + LIMIT_S
    before = 0
    while (size := _log_bytes(gateway)) > 6 << 20:  # the one being written, the next, what no checkpoint has
        assert time.monotonic() < deadline, f"{size} bytes are still there"
        if size == before:  # nothing goes by itself, and no more comes than a slow disk lets go of
            filling.basic_publish(exchange, "nobody", FILLER)
        before = size
        channel.connection.process_data_events(0.05)


def _policy(gateway: Gateway, exchange: str, nbytes: int) -> None:
    definition = {"traffic-retention-bytes": nbytes}
    body = {"pattern": f"^{exchange}$", "definition": definition, "apply-to": "exchanges"}
    _put(gateway, "policies/%2F/retention", body)


def _backfilled(channel: BlockingChannel, exchange: str, key: str) -> list[bytes]:
    """The messages that a new AMQP queue gets from the history of an exchange."""
    name = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(name, exchange, key, {"x-penstock-backfill": "pos:1"})
    found = []
    while (got := channel.basic_get(name, auto_ack=True))[0] is not None:
        found.append(got[2])
    channel.queue_delete(name)
    return found


def _replayed(gateway: Gateway, topic: str) -> list[bytes]:
    """The messages of MQTT's replay of a topic, to its end."""
    got: queue.SimpleQueue[mqtt.MQTTMessage] = queue.SimpleQueue()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.on_message = lambda client, data, message: got.put(message)
    client.on_connect = lambda client, *_: client.subscribe(f"$replay/pos:1/{topic}")
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.loop_start()
    found = []
    while (message := got.get(timeout=LIMIT_S)).topic != "$replay/end":
        found.append(message.payload)
    client.disconnect()
    client.loop_stop()
    return found


def test_an_exchange_is_replayed_that_is_kept_longer_than_its_vhost(gateway: Gateway) -> None:
    _policy(gateway, "amq.topic", 1 << 30)
    sent = [b"%d" % n for n in range(20)]
    with _channel(gateway) as channel:
        for body in sent:
            channel.basic_publish("amq.topic", "kept.a", body)
            channel.basic_publish("amq.fanout", "kept.a", b"not " + body)
        _push_out(gateway, channel, "amq.direct")
    for _ in range(2):
        assert _replayed(gateway, "kept/#") == sent
        with _channel(gateway) as channel:
            assert _backfilled(channel, "amq.topic", "kept.*") == sent
            assert _backfilled(channel, "amq.fanout", "") == []
        gateway.kill9()
        gateway.start()


def test_an_exchange_goes_that_is_kept_shorter_than_its_vhost(gateway: Gateway) -> None:
    _put(gateway, "vhost-limits/%2F/traffic-retention-bytes", {"value": 1 << 30})
    _policy(gateway, "amq.fanout", 0)
    sent = [b"%d" % n for n in range(20)]
    with _channel(gateway) as channel:
        for body in sent:
            channel.basic_publish("amq.topic", "kept.a", body)
        _push_out(gateway, channel, "amq.fanout")
    for _ in range(2):
        assert _replayed(gateway, "kept/#") == sent
        with _channel(gateway) as channel:
            assert _backfilled(channel, "amq.topic", "kept.*") == sent
            left = len(_backfilled(channel, "amq.fanout", ""))
            assert left <= 50, "those of the segments that are not closed"
        gateway.kill9()
        gateway.start()


def test_a_cycle_of_dead_letters_still_ends(gateway: Gateway) -> None:
    body = {"pattern": ".*", "definition": {"traffic-retention-seconds": 60}, "apply-to": "all"}
    _put(gateway, "policies/%2F/all", body)
    again = {"x-message-ttl": 10, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    with _channel(gateway) as channel:
        channel.queue_declare("q", durable=True, arguments=again)
        channel.basic_publish("", "q", b"x")
        deadline = time.monotonic() + LIMIT_S
        empty = 0
        while empty < 20:  # one that goes in a circle is hardly ever out of the queue
            count = channel.queue_declare("q", passive=True).method.message_count
            empty = 0 if count else empty + 1
            assert time.monotonic() < deadline, "it comes again and again"
