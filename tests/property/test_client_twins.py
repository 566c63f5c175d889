"""The client's modules in Python against the kernels that they stand for."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.native.codec import _gathering, _inbox, _records
from penstock.protocols.properties import _properties, _tables
from tests.property.test_amqp_tables import tables
from tests.property.test_native_gathering import STEPS as GATHERING_STEPS
from tests.property.test_native_inbox import STEPS as INBOX_STEPS
from tests.property.test_native_inbox import deliver, told
from tests.support.client_twins import twins
from tests.support.native_session import PLAIN

TWINS = twins()


def plain(value: Any) -> Any:
    """A value that equals another only when their types do, too, by name: each side has its own classes."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return type(value).__name__, repr(value)


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return plain(function(*arguments))
    except (ValueError, TypeError, OverflowError, _tables.TableError, TWINS._tables.TableError) as error:
        return "refused", type(error).__name__


def both(name: str, *arguments: Any) -> Any:
    """The word of both modules of tables about it."""
    said = outcome(getattr(_tables, name), *arguments)
    assert outcome(getattr(TWINS._tables, name), *arguments) == said
    return said


@given(table=tables, at=st.integers(0, 400), byte=st.integers(0, 255))
def test_tables_are_encoded_and_decoded_alike(table: dict[str, Any], at: int, byte: int) -> None:
    encoded = _tables.encode_table(table)
    both("decode_table", encoded)
    assert both("check_table", encoded) == ("bool", "True")
    damaged = bytearray(encoded)
    damaged[at % len(damaged)] = byte
    for data in (bytes(damaged), encoded[: at % len(encoded)], encoded + b"\0"):
        both("decode_table", data)
        both("check_table", data)
    # Of its own classes each side makes the same bytes.
    assert TWINS._tables.encode_table(TWINS._tables.decode_table(encoded)) == encoded


@pytest.mark.parametrize(
    "value", [2**63, -(2**63) - 1, 2**31, "\ud800", {1: 2}, {"k" * 256: 1}, {1, 2}, Decimal("1e-300"), None]
)
def test_values_are_refused_alike(value: object) -> None:
    both("encode_table", {"key": value})
    both("encode_fields", "s", (value,))


@given(spec=st.text("ohlLbsSt", max_size=12), data=st.binary(max_size=40), entries=st.integers(0, 3))
def test_arguments_are_decoded_and_encoded_alike(spec: str, data: bytes, entries: int) -> None:
    for size in range(len(data)):
        said = outcome(lambda part: _tables.decode_fields(spec, part, entries=entries), data[:size])
        again = outcome(lambda part: TWINS._tables.decode_fields(spec, part, entries=entries), data[:size])
        assert said == again
    values: dict[str, Any] = {"o": 255, "h": 256, "l": 2**32 - 1, "L": 2**64 - 1, "b": True}
    values |= {"s": "é", "S": data, "t": {"a": [1, {"b": None}]}}
    both("encode_fields", spec, tuple(values[letter] for letter in spec))


@given(
    table=st.dictionaries(
        st.sampled_from(["CC", "BCC", "x-penstock-a", "x-penstock-", "x-mqtt-retain", "name", "x-key"]),
        st.text(max_size=3) | st.integers(-5, 2**40) | st.binary(max_size=3),
    ),
    expiration=st.sampled_from(["", "0", "1000", "4294967296", "x", "٣", "12345678901"]),
    reply_to=st.sampled_from(["", "queue", "amq.rabbitmq.reply-to", "amq.rabbitmq.reply-to.g1"]),
    flags=st.integers(0, 2**16 - 1),
    at=st.integers(0, 200),
    byte=st.integers(0, 255),
)
def test_properties_are_parsed_alike(
    table: dict[str, Any], expiration: str, reply_to: str, flags: int, at: int, byte: int
) -> None:
    fields = _tables.encode_fields("sstoosss", ("text", "", table, 2, 7, "id", reply_to, expiration))
    good = b"\xff\x00" + fields
    damaged = bytearray(good)
    damaged[at % len(damaged)] = byte
    for block in (good, flags.to_bytes(2, "big") + fields, bytes(damaged), good[: at % len(good)]):
        assert _properties.parse(block) == TWINS._properties.parse(block)
        for name in (b"name", b"x-key", b"n" * 256):
            both("read_text_header", block, name)


@given(
    steps=st.lists(GATHERING_STEPS, max_size=30),
    confirms=st.lists(st.tuples(st.integers(1, 4), st.none() | st.booleans())),
)
def test_batches_are_gathered_and_settled_alike(steps: list[Any], confirms: list[Any]) -> None:
    loop = asyncio.new_event_loop()
    try:
        said = [gathered(kind, loop, steps, confirms) for kind in (_gathering, TWINS._gathering)]
    finally:
        loop.close()
    assert said[0] == said[1]


def gathered(
    module: Any, loop: asyncio.AbstractEventLoop, steps: list[Any], confirms: list[Any]
) -> list[Any]:
    gathering = module.Gathering(PLAIN, 400, 9, 3000)
    gathering.frame_max, gathering.is_plain, gathering.loop = 700, True, loop
    batches, sents, seen = [], [], []
    for what, body, block in steps:
        if what == "whole":
            batches.append(gathering.whole(body, 0, block))
        elif what == "take":
            batches.append(gathering.take())
        elif what == "add":
            seen.append(gathering.fits(len(body) + len(block)))
            sents.append(gathering.add(body, block))
        else:
            sents.append(gathering.plain(body))
        seen.append((gathering.under_way, gathering.is_full, gathering.has_room(5), gathering.batch is None))
    for batch in filter(None, batches):
        seen += [batch.count, batch.size, gathering.carries(batch)]
        if batch.count:
            batch.seal(7, 2**40, 2)
            seen.append((batch.frame, batch.records))
            batch.renumber(9)
            seen.append(batch.frame)
        for number, (count, routed) in enumerate(confirms):
            seen.append(batch.done(100 + number, count, routed))
    for sent in filter(None, sents):
        seen.append((sent.done(), sent.cancelled(), repr(sent)))
        if sent.done():
            seen.append((str(sent.result()), sent.result().routed, sent.exception()))
        else:
            seen.append((sent.cancel("why"), sent.cancel(), sent.cancelled()))
    return seen


@given(steps=st.lists(INBOX_STEPS, max_size=12))
def test_an_inbox_gives_out_and_counts_alike(steps: list[Any]) -> None:
    steps = [step for step in steps if step != "stored"]
    assert received(_inbox, _records, steps) == received(TWINS._inbox, TWINS._records, steps)


def received(module: Any, records: Any, steps: list[Any]) -> list[Any]:
    inbox = module.Inbox(records.Record, "source", 5, 400)
    seen: list[Any] = []
    tag = 1
    for step in steps:
        if isinstance(step, list):
            payload = deliver(tag, 0, step)
            tag += len(step)
            seen.append(inbox.deliver(payload))
            seen.append(outcome(inbox.deliver, payload[:-1]))
        elif step == "next":
            record = inbox.next()
            seen.append(record and told(record))
        elif step[0] == "take":
            seen.append([told(record) for record in inbox.take(step[1])])
        elif step[0] == "columns":
            columns = inbox.columns(step[1])
            seen.append(
                (
                    columns.count,
                    columns.bodies(),
                    columns.positions(),
                    columns.timestamps_ms(),
                    columns.ranges(),
                )
            )
            seen.append([told(record) for record in columns.records()])
        else:
            seen.append((step, getattr(inbox, step)()))
        seen.append((inbox.waiting, inbox.position, inbox.due, inbox.head(), inbox.source))
    return [*seen, inbox.granted(), inbox.clear(), inbox.granted()]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=6))
def test_ids_are_ordered_alike(pairs: list[tuple[int, int]]) -> None:
    ours = [TWINS._records.MessageId(*pair) for pair in pairs]
    theirs = [_records.MessageId(*pair) for pair in pairs]
    assert [repr(one) for one in sorted(ours)] == [repr(one) for one in sorted(theirs)]
    assert len(set(ours)) == len(set(theirs))
    assert [str(one) for one in ours] == [str(one) for one in theirs]
    if ours:
        assert ours[0] != (0, 0) and ours[0] == ours[0]


def test_records_are_encoded_alike() -> None:
    for arguments in (([], []), ([b"body", b""], [PLAIN, b""]), ([b"one"], [])):
        assert outcome(_records.encode_records, *arguments) == outcome(
            TWINS._records.encode_records, *arguments
        )
    one = pickle.loads(pickle.dumps(_records.MessageId(3, 4, True)))
    assert (one.position, one.due_ms, one.routed) == (3, 4, True)
