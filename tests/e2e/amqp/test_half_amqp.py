"""Half messages by pika: prepared, decided, asked about by a queue, over a restart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, NackError

from penstock.testing import Gateway

WAIT_S = 60.0
HALF: dict[str, Any] = {"x-penstock-half": "order-1", "x-penstock-check-queue": "questions"}


def opened(gateway: Gateway) -> BlockingChannel:
    """A channel with confirms, and the queues."""
    channel = pika.BlockingConnection(pika.URLParameters(gateway.amqp_url)).channel()
    channel.confirm_delivery()
    for queue in ("orders", "questions", "given-up"):
        channel.queue_declare(queue, durable=True)
    return channel


@pytest.fixture
def channel(gateway: Gateway) -> Iterator[BlockingChannel]:
    channel = opened(gateway)
    yield channel
    channel.connection.close()


def publish(channel: BlockingChannel, body: bytes, key: str = "orders", **headers: Any) -> None:
    """Raises NackError. Underscores in names of headers stand for hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    properties = pika.BasicProperties(headers=named, delivery_mode=2, reply_to="replies", message_id="m")
    channel.basic_publish("", key, body, properties)


def take(channel: BlockingChannel, queue: str) -> tuple[pika.BasicProperties, bytes]:
    """The next message of a queue."""
    ends = time.monotonic() + WAIT_S
    while time.monotonic() < ends:
        _, properties, body = channel.basic_get(queue, auto_ack=True)
        if properties is not None:
            return properties, body
        channel.connection.process_data_events(time_limit=0.05)
    raise AssertionError(f"nothing came by {queue}")


def count(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def test_it_is_published_when_it_is_committed(channel: BlockingChannel) -> None:
    publish(channel, b"half", **HALF, other="kept")
    assert count(channel, "orders") == 0
    publish(channel, b"", "anywhere", x_penstock_commit="order-1")
    properties, body = take(channel, "orders")
    assert (body, properties.reply_to, properties.message_id) == (b"half", "replies", "m")
    assert properties.headers == {"other": "kept"}


def test_it_is_forgotten_when_it_is_rolled_back(channel: BlockingChannel) -> None:
    publish(channel, b"half", **HALF)
    publish(channel, b"", x_penstock_rollback="order-1")
    with pytest.raises(NackError):
        publish(channel, b"", x_penstock_commit="order-1")
    assert count(channel, "orders") == 0


def test_a_message_prepared_twice_is_kept_once(channel: BlockingChannel) -> None:
    publish(channel, b"half", **HALF)
    publish(channel, b"half", **HALF)
    publish(channel, b"", x_penstock_commit="order-1")
    with pytest.raises(NackError):
        publish(channel, b"", x_penstock_commit="order-1")
    assert count(channel, "orders") == 1


def test_the_check_queue_asks_about_undecided_messages_also_after_a_restart(tmp_path: Path) -> None:
    """The producer dies between its local commit and the confirm; whoever reads the queue knows of it."""
    with Gateway(tmp_path / "data") as gateway:
        channel = opened(gateway)
        publish(channel, b"half", **HALF, **{"x-penstock-check-after": 100, "x-penstock-check-each": 100})
        channel.connection.close()
    with Gateway(tmp_path / "data") as gateway:
        channel = opened(gateway)
        properties, body = take(channel, "questions")
        assert (body, properties.headers["x-penstock-check"]) == (b"half", "order-1")
        assert properties.headers["x-penstock-checks"] >= 1
        publish(channel, b"", x_penstock_commit="order-1")
        assert take(channel, "orders")[1] == b"half"
        channel.connection.close()


def test_a_half_message_without_an_answer_is_given_up(channel: BlockingChannel) -> None:
    rules = {"x-penstock-check-after": 100, "x-penstock-check-each": 100, "x-penstock-max-checks": 2}
    publish(channel, b"half", **HALF, **rules, **{"x-penstock-half-dead-letter": "given-up"})
    assert take(channel, "given-up")[1] == b"half"
    assert [take(channel, "questions")[0].headers["x-penstock-checks"] for _ in range(2)] == [1, 2]
    assert (count(channel, "orders"), count(channel, "questions")) == (0, 0)


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"x-penstock-half": "a"}, "x-penstock-check-queue"),
        ({"x-penstock-half": 5, "x-penstock-check-queue": "questions"}, "text of 1 to 255"),
        ({"x-penstock-half": "a", "x-penstock-check-queue": "nowhere"}, "no queue"),
        ({**HALF, "x-penstock-commit": "b"}, "set one of them"),
        ({**HALF, "x-penstock-check-after": 1}, "from 100 to"),
        ({**HALF, "x-penstock-deliver-after": 1000}, "no delay"),
        ({**HALF, "CC": ["questions"]}, "no copies"),
        ({"x-penstock-max-checks": 3}, "without 'x-penstock-half'"),
    ],
)
def test_invalid_half_messages_are_refused(
    channel: BlockingChannel, headers: dict[str, Any], says: str
) -> None:
    with pytest.raises(ChannelClosedByBroker, match=says):
        publish(channel, b"half", **headers)


def test_without_confirms_what_is_unknown_closes_the_channel(channel: BlockingChannel) -> None:
    plain = channel.connection.channel()
    properties = pika.BasicProperties(headers={"x-penstock-commit": "unknown"})
    plain.basic_publish("", "orders", b"", properties)
    with pytest.raises(ChannelClosedByBroker, match="no undecided message 'unknown'"):
        plain.queue_declare("orders", passive=True)


def test_a_transaction_of_a_channel_has_none(channel: BlockingChannel) -> None:
    plain = channel.connection.channel()
    plain.tx_select()
    plain.basic_publish("", "orders", b"", pika.BasicProperties(headers=HALF))
    with pytest.raises(ChannelClosedByBroker, match="use a channel with confirms"):
        plain.tx_commit()
