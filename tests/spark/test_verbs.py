"""`penstock spark VERB`: each verb is run as a command, over one log, with the session of all tests.

`stop` ends a process, so tests/unit/spark/test_registry.py runs it. tests/spark/test_pages.py runs the lines
of the pages, each in a process of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest

from penstock.cli import main
from penstock.spark.jobs.verbs import VERBS
from tests.support.brokers import Gateway
from tests.support.spark_sink import url
from tests.support.spark_source import publish, wait_for_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = "--data DATA --once --checkpoint"
LINES = {
    "doctor --data DATA": "a log with positions 1 to ",
    f"sink {STREAM} jobs/sink --to delta:lake/sink": " batch 0: the table has the log up to ",
    f"dedup {STREAM} jobs/dedup --to parquet:lake/dedup --within 1h": " batch 0: ",
    f"telemetry {STREAM} jobs/telemetry --to delta:lake/plant --value v": " batch 0: ",
    "jobs": "sink ",
    "lag": " MB behind",
    "tier --data DATA --to parquet:archive --older-than 0s --cores 1": " segments, ",
    "analytics --data DATA --html report.html": "mqtt ",
    "dlq --data DATA --requeue --url URL --name monday": "1 sent as monday",
    "replay --data DATA --exchanges amq.topic --url URL --name again": "sent as again: 20 messages",
}
"""Command line -> a part of its answer."""


def test_each_verb_is_run_as_a_command(
    spark: SparkSession,
    gateway: Gateway,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pika.BlockingConnection(pika.URLParameters(url(gateway))) as connection:
        channel = connection.channel()
        channel.queue_declare("dead", durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("taken", durable=True, arguments=arguments)
        channel.confirm_delivery()
        channel.basic_publish("", "taken", b"a job", pika.BasicProperties(delivery_mode=2, message_id="1"))
        method, _, _ = channel.basic_get("taken")
        assert method is not None
        channel.basic_nack(method.delivery_tag, requeue=False)
        while not channel.queue_declare("dead", passive=True).method.message_count:
            connection.process_data_events(0.05)
    publish(gateway, 0, 20)
    wait_for_end(gateway, 0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_SPARK_JOBS", str(tmp_path / "registered"))
    # A job ends its session with itself; here that is the one of all tests.
    monkeypatch.setattr("penstock.spark.session.session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    stands = {"DATA": str(gateway.data_dir), "URL": url(gateway)}
    for line, part in LINES.items():
        code = main(["spark", *(stands.get(word, word) for word in line.split())])
        said = capsys.readouterr()
        assert code == 0 and part in said.out, (line, said)
    assert (tmp_path / "report.html").stat().st_size > 5000
    assert {line.split()[0] for line in LINES} | {"stop"} == {*VERBS}
