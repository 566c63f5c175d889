"""The other pipelines: replay, dead letters, the report."""

from __future__ import annotations

import io
import json
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pyarrow.dataset as ds

from penstock.spark.jobs.analytics import analyse
from penstock.spark.jobs.dlq import dead_letters, requeue, summary
from penstock.spark.jobs.replay import send, writing
from penstock.spark.jobs.rollup import roll_up
from penstock.spark.jobs.shared.progress import Progress, listener_of, watched
from penstock.spark.jobs.shared.report import Report, write_html
from penstock.spark.publishing.direct_copy import send_log
from penstock.spark.tables.table import open_table
from tests.support.brokers import Gateway
from tests.support.spark_sink import bound, taken, url
from tests.support.spark_source import publish, read, wait_for_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def until(condition: Callable[[], bool]) -> None:
    """Wait for what tasks told: it comes a moment later."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_replay_keeps_the_order_and_a_repeated_one_adds_nothing(
    spark: SparkSession, gateway: Gateway
) -> None:
    publish(gateway, 0, 200)
    wait_for_end(gateway, 0)
    bound(gateway, "again", "#")
    frame = read(spark, gateway, exchanges="amq.topic")
    expected = [bytes(row["payload"]) for row in frame.orderBy("offset").collect()]
    nbytes = sum(map(len, expected))
    for tasks in (1, 3):
        with listener_of(spark) as listener:
            told = read(spark, gateway, exchanges="amq.topic", report=listener.address)
            name, report = f"replay-{tasks}", listener.address
            out = io.StringIO()
            with watched(spark, Progress("json", 0.0, out=out), listener):
                send(told, url(gateway), name, exchange="again", tasks=tasks, of_log=True, report=report)
            until(lambda: listener.totals()["sent"] == (200, nbytes))
            until(lambda: listener.totals()["read"][0] == 200)
            until(lambda: 0 < listener.totals()["plan"][1] == listener.totals()["read"][1])
        assert {json.loads(line)["event"] for line in out.getvalue().splitlines()} == {"progress"}
        messages = taken(gateway)
        for key in ("plant.1.amqp", "plant.1.mqtt"):
            wanted = [body for body in expected if (int(body[1:]) % 2 == 0) == key.endswith("amqp")]
            assert [body for found, body, _ in messages if found == key] == wanted
        if tasks == 1:
            assert [body for _, body, _ in messages] == expected
    # Also when the log has lost its beginning: numbers are positions.
    send(frame.where("offset % 3 = 0"), url(gateway), "replay-1", exchange="again", of_log=True)
    assert taken(gateway) == []


def test_a_log_is_replayed_without_the_jvm_in_its_order_and_once(
    spark: SparkSession, gateway: Gateway
) -> None:
    publish(gateway, 0, 200)
    wait_for_end(gateway, 0)
    bound(gateway, "again", "#")
    frame = read(spark, gateway, exchanges="amq.topic")
    rows = frame.orderBy("offset").select("offset", "payload").collect()
    chosen = {"exchanges": "amq.topic"}

    def replay(name: str, **reading: str) -> list[bytes]:
        with listener_of(spark) as listener:
            options = writing(
                url(gateway), name, exchange="again", routing_key=None, rate=0.0, report=listener.address
            )
            told = {"report": listener.address}
            send_log(spark, str(gateway.data_dir), {**chosen, **told, **reading}, options)
            messages = taken(gateway)
            until(lambda: listener.totals()["sent"][0] == listener.totals()["read"][0])
            until(lambda: listener.totals()["plan"][1] == listener.totals()["read"][1] > 0)
        return [body for _, body, _ in messages]

    half = str(rows[100]["offset"])
    assert replay("whole") == [bytes(row["payload"]) for row in rows]
    assert replay("half", endingOffsets=half) == [bytes(row["payload"]) for row in rows[:100]]
    # A run that is repeated sends what is missing, also without the log's beginning, and by rows of Spark's.
    assert replay("half", startingOffsets=str(rows[50]["offset"])) == [
        bytes(row["payload"]) for row in rows[100:]
    ]
    send(frame, url(gateway), "half", exchange="again", of_log=True)
    assert taken(gateway) == []


def test_a_repeated_replay_may_have_another_number_of_tasks(spark: SparkSession, gateway: Gateway) -> None:
    bound(gateway, "again", "#")
    connection = pika.BlockingConnection(pika.URLParameters(url(gateway)))
    channel = connection.channel()
    channel.confirm_delivery()
    for index in range(240):
        channel.basic_publish("amq.topic", f"key.{index * index % 60}", str(index))
    connection.close()
    wait_for_end(gateway, 0)
    frame = read(spark, gateway, exchanges="amq.topic")
    rows = frame.orderBy("offset").select("offset", "routing_key", "payload").collect()
    half = str(rows[120]["offset"])

    def by_key(found: Iterable[tuple[str, bytes]]) -> dict[str, list[bytes]]:
        bodies: dict[str, list[bytes]] = {}
        for key, body in found:
            bodies.setdefault(key, []).append(body)
        return bodies

    def arrived() -> dict[str, list[bytes]]:
        return by_key((key, body) for key, body, _ in taken(gateway))

    def replay(tasks: int, **reading: str) -> dict[str, list[bytes]]:
        options = writing(url(gateway), "run", exchange="again", routing_key=None, rate=0.0, report="")
        source = {"exchanges": "amq.topic", **reading}
        send_log(spark, str(gateway.data_dir), source, options, tasks)
        return arrived()

    pairs = [(str(row["routing_key"]), bytes(row["payload"])) for row in rows]
    assert replay(2, endingOffsets=half) == by_key(pairs[:120])
    assert replay(3) == by_key(pairs[120:])
    assert replay(1) == {}
    send(frame, url(gateway), "run", exchange="again", tasks=4, of_log=True)
    assert arrived() == {}
    # Of a table each message has its number in its share of the keys.
    send(frame.where(f"offset < {half}"), url(gateway), "table", exchange="again", tasks=3)
    assert arrived() == by_key(pairs[:120])
    send(frame, url(gateway), "table", exchange="again", tasks=2)
    assert arrived() == by_key(pairs[120:])


def test_dead_letters_are_counted_and_requeued_once(spark: SparkSession, gateway: Gateway) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url(gateway)))
    channel = connection.channel()
    channel.queue_declare("dead", durable=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("taken", durable=True, arguments=arguments)
    channel.confirm_delivery()
    for index in range(10):
        properties = pika.BasicProperties(delivery_mode=2, headers={"own": index}, message_id=str(index))
        channel.basic_publish("", "taken", f"job {index}", properties)
    for index in range(10):
        method, _, _ = channel.basic_get("taken")
        assert method is not None
        if index < 7:
            channel.basic_nack(method.delivery_tag, requeue=False)
        else:
            channel.basic_ack(method.delivery_tag)
    while channel.queue_declare("dead", passive=True).method.message_count < 7:
        connection.process_data_events(0.05)
    connection.close()
    wait_for_end(gateway, 0)
    dead = dead_letters(read(spark, gateway))
    (row,) = summary(dead).collect()
    assert (row["messages"], row["dead_queue"], row["dead_reason"]) == (7, "taken", "rejected")
    assert bytes(row["sample"]).startswith(b"job ")
    for _ in range(2):
        requeue(dead, url(gateway), "monday")
    messages = taken(gateway)
    assert sorted(body for _, body, _ in messages) == [f"job {index}".encode() for index in range(7)]
    for _, body, properties in messages:
        assert properties.headers is not None
        assert properties.headers["own"] == int(body[4:])
        assert not [name for name in properties.headers if name.startswith(("x-death", "x-first-death"))]


def test_a_report_adds_up(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    bound(gateway, "amq.topic", "plant.1.amqp")
    sent = publish(gateway, 0, 200)
    wait_for_end(gateway, 0)
    report = analyse(read(spark, gateway, exchanges="amq.topic"))
    nbytes = sum(len(payload) for payload in sent)
    assert (report.whole["messages"], report.whole["bytes"], report.whole["keys"]) == (200, nbytes, 2)
    assert sum(row["messages"] for row in report.rates) == 200
    assert sum(row["count"] for row in report.buckets) == 200
    assert {row["protocol"]: row["messages"] for row in report.sizes} == {"amqp091": 100, "mqtt": 100}
    assert [(row["routing_key"], row["messages"]) for row in report.talkers] == [
        ("plant.1.amqp", 100),
        ("plant/1/mqtt", 100),
    ]
    assert "mqtt            100 messages" in report.text()
    assert {row["protocol"]: row["feeds"] for row in report.sizes} == {"amqp091": 1, "mqtt": 0}
    assert report.fan_out() == (0.5, 0.5)
    shares = {row["protocol"]: row["qos"] for row in report.sizes}
    assert shares == {"amqp091": [None, None, None], "mqtt": [0.0, 1.0, 0.0]}
    page = tmp_path / "report.html"
    write_html(report, page)
    text = page.read_text()
    plots = text.split("<svg")[1:]
    assert len(plots) == 3
    for plot in plots:
        ET.fromstring("<svg" + plot[: plot.index("</svg>") + 6])
    assert "plant.1.amqp" in text
    of_a_size = max(row["count"] for row in report.buckets if row["protocol"] == "mqtt")
    assert f"MQTT: {of_a_size}" in text, "what a column of the sizes says"
    busiest, messages = report.busiest()
    assert messages == max(
        sum(row["messages"] for row in report.rates if row["time"] == time)
        for time in {row["time"] for row in report.rates}
    )
    assert f"at {busiest:%H:%M:%S}" in text
    assert report.heaviest[0]["bytes"] == max(row["bytes"] for row in report.talkers)
    write_html(Report(), page)
    assert "No messages" in page.read_text()


def test_whole_windows_are_in_the_roll_up_once(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    to = f"parquet:{tmp_path / 'table'}"
    at = 0
    for part in range(2):
        began = time.time()
        publish(gateway, 100 * part, 100)
        at = wait_for_end(gateway, at)
        traffic = read(spark, gateway)
        added, end = roll_up(traffic, to, "log", 1)
        again, same = roll_up(traffic, to, "log", 1)
        assert (again, same) == (0, end)
        rows = ds.dataset(open_table(to).paths(), format="parquet").to_table().to_pylist() if end else []
        assert len({(row["time"], row["routing_key"]) for row in rows}) == len(rows)
        whole = traffic.where(f"append_time < timestamp_seconds({end.timestamp():.0f})")
        counted = {row["routing_key"]: row["count"] for row in whole.groupBy("routing_key").count().collect()}
        assert counted == {
            key: sum(row["messages"] for row in rows if row["routing_key"] == key) for key in counted
        }
        assert all(row["size_p50"] <= row["size_p99"] <= row["size_max"] for row in rows)
        while time.time() < int(began) + 2:
            time.sleep(0.01)  # the next messages are of a later window
    assert added > 0
