"""`penstock spark VERB`: each verb that needs Spark is run as a command, with the session of all tests.

`doctor`, `jobs`, `lag` and `stop` need none: tests/unit/spark runs them. tests/spark/test_pages.py runs the
lines of the pages, each in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest

from penstock.cli import main
from penstock.spark.jobs.verbs import VERBS
from tests.docs.pages import ROOT
from tests.support.brokers import Gateway
from tests.support.spark_sink import url
from tests.support.spark_source import publish, wait_for_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = "--data DATA --once --checkpoint"
LINES = {
    f"sink {STREAM} HERE/jobs --to parquet:HERE/sink": " batch 0: the table has the log up to ",
    f"dedup {STREAM} HERE/jobs --to parquet:HERE/dedup --within 1h": " batch 0: ",
    f"telemetry {STREAM} HERE/jobs --to parquet:HERE/plant --value v": " batch 0: ",
    "tier --data DATA --to parquet:HERE/archive --older-than 0s --cores 1": " segments, ",
    "analytics --data DATA --html HERE/report.html": "amqp091 ",
    "dlq --data DATA --requeue --url URL --name monday": "1 sent as monday",
    "replay --data DATA --exchanges amq.topic --url URL --name again": "sent as again: 20 messages",
}
"""Command line -> a part of its answer."""
WITHOUT_SPARK = {
    "doctor": "test_verbs.py",
    "jobs": "test_registry.py",
    "lag": "test_registry.py",
    "stop": "test_registry.py",
}
"""Verb -> the file of tests/unit/spark that runs it."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway whose log has a dead letter and 20 messages of a topic."""
    with Gateway(tmp_path_factory.mktemp("verbs")) as running:
        with pika.BlockingConnection(pika.URLParameters(url(running))) as connection:
            channel = connection.channel()
            channel.queue_declare("dead", durable=True)
            arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
            channel.queue_declare("taken", durable=True, arguments=arguments)
            channel.confirm_delivery()
            channel.basic_publish("", "taken", b"a job", pika.BasicProperties(delivery_mode=2))
            method, _, _ = channel.basic_get("taken")
            assert method is not None
            channel.basic_nack(method.delivery_tag, requeue=False)
            while not channel.queue_declare("dead", passive=True).method.message_count:
                connection.process_data_events(0.05)
        publish(running, 0, 20)
        wait_for_end(running, 0)
        yield running


@pytest.mark.parametrize("line", LINES)
def test_a_verb_is_run_as_a_command(
    line: str,
    spark: SparkSession,
    kept: Gateway,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_SPARK_JOBS", str(tmp_path / "registered"))
    # A job ends its session with itself; here that is the one of all tests.
    monkeypatch.setattr("penstock.spark.session.session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    placed = line
    for name, place in (("DATA", kept.data_dir), ("URL", url(kept)), ("HERE", tmp_path)):
        placed = placed.replace(name, str(place))
    code = main(["spark", *placed.split()])
    said = capsys.readouterr()
    assert code == 0 and LINES[line] in said.out, said


def test_every_verb_is_run() -> None:
    assert {line.split()[0] for line in LINES} | {*WITHOUT_SPARK} == {*VERBS}
    for verb, file in WITHOUT_SPARK.items():
        assert f'main(["spark", "{verb}"' in (ROOT / "tests" / "unit" / "spark" / file).read_text()
