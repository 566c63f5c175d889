"""Every mistake of the golden file is answered as RabbitMQ answers it: scope, code, text, class, method."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp.commands import Exchange, Queue

from tests.e2e.amqp.mistakes import MISTAKES, make
from tests.e2e.amqp.raw_mistakes import RAW_MISTAKES, make_raw
from tests.support.amqp_client import Closed, Connection
from tests.support.limits import LIMIT_S

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "amqp-errors.json").read_text())


def expected(name: str, broker_name: str) -> dict[str, object]:
    entry = GOLDEN[name]
    key = "rabbitmq 3.10.8" if broker_name == "rabbitmq" and "rabbitmq 3.10.8" in entry else "expect"
    wanted: dict[str, object] = entry[key]
    return wanted


@pytest.fixture
def connection(amqp_port: int) -> Iterator[Connection]:
    """A connection with channel 1 open; what the mistakes declare is deleted after the test."""
    with Connection(amqp_port) as c:
        c.channel()
        yield c
    with Connection(amqp_port) as c:
        c.channel()
        c.call(1, Queue.Delete(queue="pe.q1"))
        for exchange in ("pe.x1", "pe.x3", "pe.xi", "pe.zz"):
            c.call(1, Exchange.Delete(exchange=exchange))


def test_every_golden_mistake_is_made() -> None:
    assert set(GOLDEN) == set(MISTAKES) | set(RAW_MISTAKES)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name: str, connection: Connection, broker_name: str) -> None:
    got = make(connection, name)
    if "text" in got:
        got["text"] = re.sub(r"amq\.gen-[\w-]{22}", "amq.gen-*", str(got["text"]))
    assert got == expected(name, broker_name)


@pytest.mark.parametrize("name", RAW_MISTAKES)
def test_raw_mistake(name: str, amqp_port: int, broker_name: str) -> None:
    wanted = dict(expected(name, broker_name))
    got = make_raw(amqp_port, name, 0.7 if wanted.get("ended") is False else LIMIT_S)
    text = str(wanted.pop("text", ""))
    assert str(got.pop("text", "")).startswith(text)
    assert got == wanted


def test_after_a_channel_error_the_connection_and_the_number_are_usable(amqp_port: int) -> None:
    with Connection(amqp_port) as c:
        c.channel()
        with pytest.raises(Closed) as error:
            c.call(1, Queue.Declare(queue="pe.none", passive=True))
        assert (error.value.scope, error.value.code) == ("channel", 404)
        c.channel()
        assert isinstance(c.call(1, Queue.Declare(exclusive=True)), Queue.DeclareOk)
