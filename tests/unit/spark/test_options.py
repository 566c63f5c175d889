"""Options of the source: read, checked, refused with the remedy."""

from __future__ import annotations

import pickle

import pytest

from penstock.spark.errors import DataLoss, SparkOptionError
from penstock.spark.options import ReadOptions, parse_duration_s
from penstock.spark.schema import COLUMNS, arrow_schema, ddl, select


def parse(**options: str) -> ReadOptions:
    return ReadOptions.parse({"path": "/data", **options})


def test_defaults_ask_for_everything() -> None:
    options = parse()
    assert options.wanted.everything
    assert (options.starting, options.ending, options.encodings, options.payload_max) == (None, None, 0, -1)
    assert options.fail_on_data_loss
    assert not options.written


def test_names_are_read_in_any_case() -> None:
    options = ReadOptions.parse({"PATH": "/data", "startingoffsets": "12", "MAXOFFSETSPERTRIGGER": "5"})
    assert (options.starting, options.max_offsets) == (12, 5)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("path", ""),
        ("colums", "offset"),
        ("payload", "head"),
        ("protocols", "kafka"),
        ("startingOffsets", "soon"),
        ("startingOffsets", "-1"),
        ("endingOffsets", '{"1": 2}'),
        ("startingTimestamp", "yesterday"),
        ("failOnDataLoss", "maybe"),
        ("isolation", "dirty"),
        ("maxOffsetsPerTrigger", "0"),
        ("maxTriggerDelay", "5 minutes"),
        ("taskBytes", "10"),
        ("topics", "a/#/b"),
        ("topics", "a#"),
        ("topics", ""),
        ("exchanges", " , "),
    ],
)
def test_invalid_options_are_refused_by_name(option: str, value: str) -> None:
    with pytest.raises(SparkOptionError, match=option):
        parse(**{option: value})


def test_the_default_exchange_has_a_name() -> None:
    options = parse(exchanges="amq.default, orders")
    assert options.wanted.exchanges == ("", "orders")
    wants = options.wanted.matcher().row
    assert wants("amqp091", "", "queue") and wants("amqp091", "orders", "x")
    assert not wants("amqp091", "others", "queue")


def test_ends_are_of_batch_queries_and_lie_behind_starts() -> None:
    with pytest.raises(SparkOptionError, match=r"'endingTimestamp'.*not before startingTimestamp"):
        parse(startingTimestamp="2026-01-02", endingTimestamp="2026-01-01")
    with pytest.raises(SparkOptionError, match=r"'startingOffsets': 'latest'.*a batch query ends there"):
        parse(startingOffsets="latest").for_batch()
    for option in ("endingOffsets", "endingTimestamp"):
        with pytest.raises(SparkOptionError, match=rf"'{option}'.*a stream has no end"):
            parse(**{option: "5"}).for_stream()
    options = parse(startingOffsets="latest", endingOffsets="5")
    assert parse(endingOffsets="5").for_batch().ending == 5
    assert parse(startingOffsets="latest").for_stream().starting == options.starting


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("maxOffsetsPerTrigger", "5"),
        ("maxBytesPerTrigger", "5000"),
        ("minOffsetsPerTrigger", "5"),
        ("maxTriggerDelay", "15m"),
    ],
)
def test_batch_queries_refuse_options_of_triggers(option: str, value: str) -> None:
    options = parse(**{option: value})
    with pytest.raises(SparkOptionError, match=rf"'{option}': '{value}'.*a batch query has no triggers"):
        options.for_batch()
    assert options.for_stream() == options


def test_a_cursor_needs_a_gateway() -> None:
    given = {"path": "/d", "startingOffsets": "cursor:ml"}
    with pytest.raises(SparkOptionError, match="by the option endpoint"):
        ReadOptions.parse(given)
    options = ReadOptions.parse({**given, "endpoint": "penstock://gw"})
    assert (options.starting, options.starts_exactly) == ("cursor:ml", True)
    assert not ReadOptions.parse({"path": "/d", "startingOffsets": "latest"}).starts_exactly


def test_a_position_and_a_time_exclude_each_other() -> None:
    with pytest.raises(SparkOptionError, match="leave out startingOffsets"):
        parse(startingOffsets="1", startingTimestamp="0")


def test_positions_are_numbers_or_json_and_times_are_utc() -> None:
    assert parse(startingOffsets='{"0": 7, "log": "x"}').starting == 7
    assert parse(startingTimestamp="1970-01-01T00:00:01").starting_ms == 1000
    assert parse(endingTimestamp="1970-01-01T01:00:01+01:00").ending_ms == 1000
    assert parse(endingTimestamp="5").ending_ms == 5
    assert parse_duration_s("x", "500ms") == 0.5


def test_columns_come_in_table_order() -> None:
    assert select("payload, offset", "full") == ["offset", "payload"]
    assert "payload" not in select(None, "none")
    with pytest.raises(SparkOptionError, match="give some of protocol"):
        select("body", "full")


def test_both_schemas_have_the_same_columns() -> None:
    assert arrow_schema(list(COLUMNS)).names == list(COLUMNS)
    assert ddl(["offset", "qos"]) == "`offset` bigint, `qos` tinyint"


def test_data_loss_keeps_its_ranges_when_it_crosses_processes() -> None:
    loss = pickle.loads(pickle.dumps(DataLoss([(1, 5), (9, 12)], "gone")))
    assert loss.ranges == ((1, 5), (9, 12))
    assert "[1, 5), [9, 12)" in str(loss)
    assert "failOnDataLoss=false" in str(loss)
