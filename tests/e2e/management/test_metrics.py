"""The metrics pages: as Prometheus parses them, as RabbitMQ's dashboard asks for them, with true numbers."""

from __future__ import annotations

import re
import time
from typing import Any

import httpx
import paho.mqtt.client as paho
import pika
import pika.exceptions
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.brokers import ROOT, Gateway
from tests.support.limits import LIMIT_S

pytestmark = pytest.mark.penstock_only("this is about penstock's own metrics")

DASHBOARD = (
    "rabbitmq_alarms_file_descriptor_limit rabbitmq_build_info rabbitmq_channels "
    "rabbitmq_channels_closed_total "
    "rabbitmq_channels_opened_total rabbitmq_connections rabbitmq_connections_closed_total "
    "rabbitmq_connections_opened_total rabbitmq_disk_space_available_bytes "
    "rabbitmq_disk_space_available_limit_bytes rabbitmq_erlang_uptime_seconds rabbitmq_global_consumers "
    "rabbitmq_global_messages_acknowledged_total rabbitmq_global_messages_confirmed_total "
    "rabbitmq_global_messages_delivered_consume_auto_ack_total "
    "rabbitmq_global_messages_delivered_consume_manual_ack_total "
    "rabbitmq_global_messages_delivered_get_auto_ack_total "
    "rabbitmq_global_messages_delivered_get_manual_ack_total rabbitmq_global_messages_delivered_total "
    "rabbitmq_global_messages_get_empty_total rabbitmq_global_messages_received_confirm_total "
    "rabbitmq_global_messages_received_total rabbitmq_global_messages_redelivered_total "
    "rabbitmq_global_messages_routed_total rabbitmq_global_messages_unroutable_dropped_total "
    "rabbitmq_global_messages_unroutable_returned_total rabbitmq_global_publishers rabbitmq_identity_info "
    "rabbitmq_message_size_bytes_bucket rabbitmq_process_max_fds rabbitmq_process_open_fds "
    "rabbitmq_process_resident_memory_bytes rabbitmq_queue_messages_ready rabbitmq_queue_messages_unacked "
    "rabbitmq_queues rabbitmq_queues_created_total rabbitmq_queues_declared_total "
    "rabbitmq_queues_deleted_total rabbitmq_resident_memory_limit_bytes"
).split()
"""The metrics in the expressions of RabbitMQ's overview dashboard (Grafana 10991)."""


def scrape(gateway: Gateway, path: str = "/metrics") -> dict[tuple[str, frozenset[Any]], float]:
    """The values of a page by name and labels, parsed by Prometheus' own client."""
    answer = httpx.get(f"http://127.0.0.1:{gateway.ports['metrics']}{path}", timeout=LIMIT_S)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    values: dict[tuple[str, frozenset[Any]], float] = {}
    for family in text_string_to_metric_families(answer.text):
        assert family.documentation and family.type
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in values, f"{key} twice"
            values[key] = sample.value
    return values


def value(values: dict[tuple[str, frozenset[Any]], float], name: str, **labels: str) -> float:
    return values[name, frozenset(labels.items())]


def test_every_name_of_rabbitmqs_dashboard_is_there_from_the_start(gateway: Gateway) -> None:
    values = scrape(gateway)
    names = {name for name, _ in values}
    assert [name for name in DASHBOARD if name not in names] == []
    (identity,) = [dict(labels) for name, labels in values if name == "rabbitmq_identity_info"]
    assert identity["rabbitmq_endpoint"] == "aggregated"
    bounds = [dict(labels)["le"] for name, labels in values if name == "rabbitmq_message_size_bytes_bucket"]
    assert set(bounds) == set("100.0 1000.0 10000.0 100000.0 1e+06 1e+07 5e+07 1e+08 +Inf".split())


def left_out() -> tuple[str, ...]:
    """The names that docs/reference/metrics.md gives a reason for."""
    section = (
        (ROOT / "docs" / "reference" / "metrics.md")
        .read_text()
        .partition("## Left out")[2]
        .partition("## Own")[0]
    )
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return tuple(name for row in rows for name in re.findall(r"`(rabbitmq_[a-z_]+)`", row))


def rabbitmqs() -> dict[str, list[str]]:
    """RabbitMQ's names by page."""
    pages: dict[str, list[str]] = {}
    for line in (ROOT / "tests" / "golden" / "rabbitmq_metrics.txt").read_text().splitlines():
        if line.startswith("  "):
            pages[next(reversed(pages))].append(line.strip())
        else:
            pages[line] = []
    return pages


@pytest.mark.parametrize("page", rabbitmqs())
def test_every_name_of_rabbitmq_is_there_or_left_out_for_a_reason(gateway: Gateway, page: str) -> None:
    """With something of each kind there is: a queue, a channel, a consumer."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.basic_consume(queue, lambda *_: None)
        ours = {name for name, _ in scrape(gateway, page)}
    reasons = {name.removeprefix("rabbitmq_") for name in left_out()}
    if page == "/metrics":
        reasons |= {"queue_consumer_utilisation", "queue_consumer_capacity"}
    if page.endswith(("=channel_queue_exchange_metrics", "=ra_metrics")):
        assert ours == {"rabbitmq_build_info", "rabbitmq_identity_info"}
        return
    short = {name: re.sub("^rabbitmq_(detailed_)?", "", name) for name in rabbitmqs()[page]}
    missing = [name for name, bare in short.items() if name not in ours and bare not in reasons]
    assert missing == []
    found = [name for name, bare in short.items() if bare in left_out() and name in ours]
    assert found == [], "docs/reference/metrics.md says that these are left out"


def test_mqtt_is_counted_by_version_and_nothing_falls(gateway: Gateway) -> None:
    """The counts of a session and a queue stay after they are deleted."""
    before = scrape(gateway)
    for version, times in ((paho.MQTTv311, 2), (paho.MQTTv5, 3)):
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, "", protocol=version)
        client.username_pw_set("guest", "guest")
        got: list[bytes] = []
        client.on_message = lambda _, __, message, got=got: got.append(message.payload)
        granted: list[int] = []
        client.on_subscribe = lambda *_, granted=granted: granted.append(1)
        client.connect("127.0.0.1", gateway.mqtt_port)
        client.loop_start()
        try:
            client.subscribe("by/version", 1)
            ends = time.monotonic() + LIMIT_S
            while not granted:
                assert time.monotonic() < ends
                time.sleep(0.005)
            for _ in range(times):
                client.publish("by/version", b"x", qos=1).wait_for_publish(LIMIT_S)
            label = "mqtt50" if version == paho.MQTTv5 else "mqtt311"
            done = "rabbitmq_global_messages_acknowledged_total"
            classic = {"protocol": label, "queue_type": "rabbit_classic_queue"}
            while value(scrape(gateway), done, **classic) - value(before, done, **classic) < times:
                assert time.monotonic() < ends
        finally:
            client.disconnect()
            client.loop_stop()
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        channel = connection.channel()
        channel.queue_declare("short-lived")
        channel.confirm_delivery()
        for _ in range(4):
            channel.basic_publish("", "short-lived", b"x")
        for _ in range(2):
            channel.basic_get("short-lived", auto_ack=True)
        channel.queue_delete("short-lived")
    after = scrape(gateway)

    def grown(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    for label, times in (("mqtt310", 0), ("mqtt311", 2), ("mqtt50", 3)):
        classic = {"protocol": label, "queue_type": "rabbit_classic_queue"}
        assert grown("rabbitmq_global_messages_received_total", protocol=label) == times
        assert grown("rabbitmq_global_messages_delivered_total", **classic) == times
        assert grown("rabbitmq_global_messages_acknowledged_total", **classic) == times
    classic = {"protocol": "amqp091", "queue_type": "rabbit_classic_queue"}
    assert grown("rabbitmq_global_messages_delivered_total", **classic) == 2
    assert grown("rabbitmq_queue_messages_published_total") == 2 + 3 + 4
    assert grown("rabbitmq_channel_messages_published_total") == 4
    assert grown("rabbitmq_connection_incoming_bytes_total") > 0
    fallen = [key for key, old in before.items() if key[0].endswith("_total") and after.get(key, -1.0) < old]
    assert fallen == []


def test_the_numbers_are_what_happened(gateway: Gateway) -> None:
    before = scrape(gateway)
    amqp = {"protocol": "amqp091"}
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        channel = connection.channel()
        channel.queue_declare("m q", durable=True, arguments={"x-queue-type": "quorum"})
        channel.confirm_delivery()
        for size in (10, 100, 101, 5000):
            channel.basic_publish("", "m q", b"x" * size)
        channel.basic_publish("", "nowhere", b"")
        channel.basic_get("m q", auto_ack=True)
        method, _, _ = channel.basic_get("m q")
        channel.basic_nack(method.delivery_tag, requeue=True)
        method, _, _ = channel.basic_get("m q")
        during = scrape(gateway)
        detail = scrape(gateway, "/metrics/detailed?family=queue_coarse_metrics&family=nonsense")
        objects = scrape(gateway, "/metrics/per-object")

    def grown(name: str, **labels: str) -> float:
        return value(during, name, **labels) - value(before, name, **labels)

    assert grown("rabbitmq_global_messages_received_total", **amqp) == 5
    assert grown("rabbitmq_global_messages_received_confirm_total", **amqp) == 5
    assert grown("rabbitmq_global_messages_confirmed_total", **amqp) == 5
    assert grown("rabbitmq_global_messages_unroutable_dropped_total", **amqp) == 1
    assert grown("rabbitmq_global_messages_routed_total", **amqp) == 4
    assert grown("rabbitmq_global_messages_delivered_get_auto_ack_total", **amqp) == 1
    assert grown("rabbitmq_global_messages_delivered_get_manual_ack_total", **amqp) == 2
    quorum = {**amqp, "queue_type": "rabbit_quorum_queue"}
    assert grown("rabbitmq_global_messages_delivered_total", **quorum) == 3
    assert grown("rabbitmq_global_messages_redelivered_total", **quorum) == 1
    assert grown("rabbitmq_queue_messages_ready") == 2
    assert grown("rabbitmq_queue_messages_unacked") == 1
    assert grown("rabbitmq_connections") == 1
    assert grown("rabbitmq_message_size_bytes_bucket", **amqp, le="100.0") == 3
    assert grown("rabbitmq_message_size_bytes_bucket", **amqp, le="1000.0") == 4
    assert grown("rabbitmq_message_size_bytes_sum", **amqp) == 5211
    queue = {"vhost": "/", "queue": "m q"}
    assert value(detail, "rabbitmq_detailed_queue_messages_ready", **queue) == 2
    assert value(detail, "rabbitmq_detailed_queue_messages", **queue) == 3
    assert {name for name, _ in detail if "detailed_" not in name} == {
        "rabbitmq_build_info",
        "rabbitmq_identity_info",
    }
    assert value(objects, "rabbitmq_queue_messages_unacked", **queue) == 1
    assert value(objects, "rabbitmq_queue_messages_published_total", **queue) == 4
    after = scrape(gateway)
    assert (
        value(after, "rabbitmq_connections_closed_total")
        == value(before, "rabbitmq_connections_closed_total") + 1
    )
    received = value(after, "rabbitmq_global_messages_received_total", **amqp)
    assert received == value(during, "rabbitmq_global_messages_received_total", **amqp), "totals never fall"


def test_memory_is_broken_down(gateway: Gateway) -> None:
    assert value(scrape(gateway, "/metrics/memory-breakdown"), "rabbitmq_memory_other_system_bytes") > 0


def test_logins_and_dead_letters_are_counted(gateway: Gateway) -> None:
    before = scrape(gateway)
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)
    wrong = pika.ConnectionParameters(
        "127.0.0.1", gateway.amqp_port, credentials=pika.PlainCredentials("guest", "wrong")
    )
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(wrong)
    httpx.get(
        f"http://127.0.0.1:{gateway.ports['management']}/api/overview", auth=("nobody", "x"), timeout=LIMIT_S
    )
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("graves")
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves", "x-max-length": 1}
        channel.queue_declare("short", arguments=arguments)
        channel.confirm_delivery()
        for _ in range(3):
            channel.basic_publish("", "short", b"")
        method, _, _ = channel.basic_get("short")
        channel.basic_reject(method.delivery_tag, requeue=False)
        deadline = time.monotonic() + LIMIT_S
        while channel.queue_declare("graves", passive=True).method.message_count < 3:
            assert time.monotonic() < deadline
        after = scrape(gateway)

    def grown(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    for protocol, right, failed in (("amqp091", 1, 1), ("http", 0, 1), ("mqtt", 0, 0), ("native", 0, 0)):
        assert grown("rabbitmq_auth_attempts_succeeded_total", protocol=protocol) == right
        assert grown("rabbitmq_auth_attempts_failed_total", protocol=protocol) == failed
        assert grown("rabbitmq_auth_attempts_total", protocol=protocol) == right + failed
    labels = {"queue_type": "rabbit_classic_queue", "dead_letter_strategy": "at_most_once"}
    assert grown("rabbitmq_global_messages_dead_lettered_maxlen_total", **labels) == 2
    assert grown("rabbitmq_global_messages_dead_lettered_rejected_total", **labels) == 1
    assert grown("rabbitmq_global_messages_dead_lettered_expired_total", **labels) == 0
