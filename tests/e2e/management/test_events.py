"""The table of events: what real clients do is in it, in order, and nothing is while it is off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from penstock import sync
from penstock.spark.logs.log_view import LogView
from penstock.spark.logs.planning import open_view, plan, selection_of, starting_position
from penstock.spark.logs.reading import read_parts
from penstock.spark.logs.storage import close_clients
from penstock.spark.options import ReadOptions
from penstock.spark.schema import EVENT_COLUMNS
from tests.support.brokers import Gateway
from tests.support.pika_queues import consume_in_transactions

pytestmark = pytest.mark.penstock_only("other brokers have no log")

DEADLINE_S = 300.0
ALL = "connect,disconnect,subscribe,unsubscribe,deliver,ack,requeue,dead_letter,drop"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    settings = {"native.listen": "127.0.0.1:0", "events.kinds": ALL, "log.segment_bytes": "1MiB"}
    with Gateway(tmp_path / "gateway", settings=settings) as running:
        yield running
    close_clients()


def rows(source: object, table: str = "events", **more: str) -> list[dict[str, Any]]:
    """A table as a query reads it."""
    options = ReadOptions.parse({"path": str(source), "isolation": "written", "table": table, **more})
    view = open_view(options)
    view.refresh()
    selection = selection_of(view, options, options.selected, view.complete_from)
    start = starting_position(view, options, "earliest")
    found: list[dict[str, Any]] = []
    for task in plan(view, options, selection, start, view.end(written=True)):
        for batch in read_parts(options.storage, task, selection):
            batch.validate(full=True)
            found += batch.to_pylist()
    return found


def wait_for(found: Callable[[list[dict[str, Any]]], bool], source: object) -> list[dict[str, Any]]:
    """Wait until the table of events has what `found` wants."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        table = rows(source)
        if found(table):
            return table
        assert time.monotonic() < deadline, table
        time.sleep(0.02)


def kinds(table: list[dict[str, Any]], queue: str) -> list[tuple[str, int]]:
    """Kind and position of what became of the messages of a queue, in order."""
    return [
        (row["kind"], row["message_offset"])
        for row in table
        if row["queue"] == queue and row["message_offset"] is not None
    ]


@pytest.fixture
def channel(gateway: Gateway) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    if connection.is_open:
        connection.close()


def positions(gateway: Gateway, **more: str) -> list[int]:
    """Of the messages, in order."""
    return [row["offset"] for row in rows(gateway.data_dir, "traffic", **more)]


def test_the_table_has_the_events_of_messages(gateway: Gateway, channel: BlockingChannel) -> None:
    channel.queue_declare("dead", durable=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("q", durable=True, arguments=arguments)
    for index in range(4):
        channel.basic_publish("", "q", f"m{index}", pika.BasicProperties(delivery_mode=2))
    taken = []
    for method, _, _ in channel.consume("q"):
        taken.append(method)
        if len(taken) == 4:
            break
    channel.basic_ack(taken[0].delivery_tag)
    channel.basic_reject(taken[1].delivery_tag, requeue=False)
    channel.cancel()
    channel.basic_nack(taken[2].delivery_tag, requeue=True)
    channel.basic_nack(taken[3].delivery_tag, requeue=True)
    got, _, _ = channel.basic_get("q")
    assert got is not None
    channel.basic_ack(got.delivery_tag)
    again, _, _ = channel.basic_get("q", auto_ack=True)
    assert again is not None
    channel.connection.close()
    table = wait_for(lambda table: any(row["kind"] == "disconnect" for row in table), gateway.data_dir)
    first, second, third, fourth = positions(gateway)[:4]
    found = kinds(table, "q")
    assert found[:4] == [("deliver", first), ("deliver", second), ("deliver", third), ("deliver", fourth)]
    assert sorted(found[4:]) == sorted(
        [
            ("ack", first),
            ("dead_letter", second),
            ("requeue", third),
            ("requeue", fourth),
            ("deliver", third),
            ("ack", third),
            ("deliver", fourth),
            ("ack", fourth),
        ]
    )
    delivered = [row for row in table if row["kind"] == "deliver" and row["queue"] == "q"]
    assert [row["redelivered"] for row in delivered] == [False] * 4 + [True] * 2
    (dead,) = (row for row in table if row["kind"] == "dead_letter")
    assert (dead["detail"], dead["vhost"], dead["redelivered"]) == ("rejected", "/", None)
    (connect,) = (row for row in table if row["kind"] == "connect")
    (disconnect,) = (row for row in table if row["kind"] == "disconnect")
    assert (connect["user"], connect["vhost"], connect["message_offset"]) == ("guest", "/", None)
    assert connect["detail"].startswith("amqp")
    assert connect["connection"] == disconnect["connection"] == delivered[0]["connection"]
    assert connect["connection"].endswith(f"-> 127.0.0.1:{gateway.amqp_port}")
    consumers = [(row["kind"], row["queue"]) for row in table if row["kind"] in ("subscribe", "unsubscribe")]
    assert consumers == [("subscribe", "q"), ("unsubscribe", "q")]
    order = [(row["offset"], row["index"]) for row in table]
    assert order == sorted(order)
    assert len(set(order)) == len(order)
    # The messages are none of the events, nor the other way round.
    assert len(positions(gateway)) == 5, "four, and a dead letter"


def test_drops_by_length_and_age_have_their_reason(gateway: Gateway, channel: BlockingChannel) -> None:
    channel.queue_declare("short", arguments={"x-max-length": 1})
    channel.queue_declare("brief", arguments={"x-message-ttl": 1})
    for _ in range(3):
        channel.basic_publish("", "short", b"x")
    channel.basic_publish("", "brief", b"x")
    deadline = time.monotonic() + DEADLINE_S
    while channel.queue_declare("brief", passive=True).method.message_count:
        channel.basic_get("brief", auto_ack=True)
        assert time.monotonic() < deadline
    table = wait_for(lambda table: sum(row["kind"] == "drop" for row in table) >= 2, gateway.data_dir)
    dropped = [(row["queue"], row["detail"]) for row in table if row["kind"] == "drop"]
    assert dropped.count(("short", "maxlen")) == 2
    assert set(dropped) <= {("short", "maxlen"), ("brief", "expired")}


def test_sessions_of_mqtt_and_clients_of_the_sdk_are_in_it(gateway: Gateway) -> None:
    url = f"penstock://guest:guest@127.0.0.1:{gateway.ports['native']}"
    received = []
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "sensor-1", protocol=paho.MQTTv5)
    client.on_message = lambda *words: received.append(words[2].payload)
    client.on_subscribe = lambda *words: received.append(b"subscribed")
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.subscribe("plant/#", qos=1)
    client.loop_start()
    deadline = time.monotonic() + DEADLINE_S
    while not received:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with sync.connect(url) as native, native.producer("t") as producer:
        for index in range(3):
            client.publish("plant/1", str(index), qos=1).wait_for_publish(DEADLINE_S)
        with native.subscribe("t", "s", start="earliest") as consumer:
            producer.send_many([b"n"] * 100)  # taken as they are stored
            count = 0
            while count < 100:
                messages = consumer.receive_many(100, DEADLINE_S)
                consumer.ack(messages)
                count += len(messages)
    while len(received) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    client.disconnect()
    client.loop_stop()
    table = wait_for(
        lambda table: (
            sum(row["kind"] == "disconnect" for row in table) == 2
            and sum(row["kind"] == "ack" for row in table) == 103
        ),
        gateway.data_dir,
    )
    details = {row["detail"] for row in table if row["kind"] == "connect"}
    assert any(detail.startswith("mqtt") and "sensor-1" in detail for detail in details), details
    assert any(detail.startswith("native") for detail in details), details
    (queue,) = {row["queue"] for row in table if row["kind"] == "deliver" and "sensor-1" in row["queue"]}
    sent = positions(gateway, topics="plant/#")
    found = kinds(table, queue)
    assert [pos for kind, pos in found if kind == "deliver"] == sent
    assert [pos for kind, pos in found if kind == "ack"] == sent
    native_rows = [row for row in table if row["queue"] not in (None, queue)]
    given = [row for row in native_rows if row["kind"] == "deliver"]
    others = [position for position in positions(gateway) if position not in sent]
    assert sorted(row["message_offset"] for row in given) == others
    assert sorted(row["message_offset"] for row in native_rows if row["kind"] == "ack") == others
    assert all(row["connection"] for row in given)
    # The gateway's answer equals the content of its files.
    assert rows(url)[: len(table)] == table
    half = rows(gateway.data_dir, columns="kind,message_offset", vhosts="/")
    wanted = [(row["kind"], row["message_offset"]) for row in table if row["vhost"] == "/"]
    assert [tuple(row.values()) for row in half][: len(wanted)] == wanted
    assert rows(gateway.data_dir, vhosts="elsewhere") == []
    assert list(rows(gateway.data_dir)[0]) == list(EVENT_COLUMNS)


def test_events_survive_a_kill_and_nothing_is_noted_when_it_is_off(tmp_path: Path) -> None:
    settings = {"events.kinds": "connect,ack"}
    with Gateway(tmp_path / "gateway", settings=settings) as gateway:
        consume_in_transactions(gateway.amqp_port, 50)
        before = wait_for(lambda table: sum(row["kind"] == "ack" for row in table) == 50, gateway.data_dir)
        assert {row["kind"] for row in before} == {"connect", "ack"}
        gateway.kill9()
        gateway.start()
        assert rows(gateway.data_dir)[: len(before)] == before
    with Gateway(tmp_path / "off") as gateway:
        consume_in_transactions(gateway.amqp_port, 50)
        view = LogView(gateway.data_dir)
        view.refresh()
        assert rows(gateway.data_dir) == []
        assert len(positions(gateway)) == 50


def test_events_go_when_their_retention_says_and_messages_stay(tmp_path: Path) -> None:
    settings = {"events.kinds": "deliver,ack", "events.retention_bytes": "0", "log.segment_bytes": "1MiB"}
    settings["log.checkpoint_bytes"] = "1MiB"
    with Gateway(tmp_path / "gateway", settings=settings) as gateway:
        deadline = time.monotonic() + DEADLINE_S
        count = 0
        while True:
            consume_in_transactions(gateway.amqp_port, 5000)
            count += 5000
            left = rows(gateway.data_dir)
            if count >= 15_000 and left and left[0]["message_offset"] > positions(gateway)[4999]:
                break
            assert time.monotonic() < deadline, (count, len(left))
        assert len(positions(gateway)) == count
