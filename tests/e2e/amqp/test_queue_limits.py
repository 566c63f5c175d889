"""x-expires and delivery limits through pika."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.support.limits import LIMIT_S


@pytest.fixture
def connection(amqp_port: int) -> Iterator[pika.BlockingConnection]:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port)) as connection:
        yield connection


def exists(connection: pika.BlockingConnection, name: str) -> bool:
    """Asked by a purge: that does not count as a use of the queue."""
    channel = connection.channel()
    try:
        channel.queue_purge(name)
    except ChannelClosedByBroker as error:
        assert "no queue" in error.reply_text
        return False
    channel.close()
    return True


def wait_gone(connection: pika.BlockingConnection, name: str) -> float:
    """How long it took."""
    began = time.monotonic()
    while exists(connection, name):
        assert time.monotonic() < began + LIMIT_S
        connection.sleep(0.02)
    return time.monotonic() - began


def test_a_queue_expires_when_nobody_uses_it(connection: pika.BlockingConnection, unique: str) -> None:
    channel = connection.channel()
    channel.queue_declare(unique, arguments={"x-expires": 300})
    channel.basic_publish("", unique, b"x")
    assert wait_gone(connection, unique) > 0.2


def test_consumers_keep_a_queue_from_expiring(connection: pika.BlockingConnection, unique: str) -> None:
    channel = connection.channel()
    channel.queue_declare(unique, arguments={"x-expires": 200})
    tag = channel.basic_consume(unique, lambda *_: None)
    connection.sleep(0.5)
    assert exists(connection, unique)
    channel.basic_cancel(tag)
    assert wait_gone(connection, unique) > 0.1


def deliveries(channel: BlockingChannel, name: str, count: int) -> list[object]:
    """Get the message so often and give it back; the x-delivery-count each had, 0 without."""
    found: list[object] = []
    deadline = time.monotonic() + LIMIT_S
    while len(found) < count:
        method, properties, _ = channel.basic_get(name)
        if method is None:
            assert time.monotonic() < deadline, found
            time.sleep(0.01)
            continue
        found.append((properties.headers or {}).get("x-delivery-count", 0))
        channel.basic_nack(method.delivery_tag, requeue=True)
    return found


def test_an_expiry_of_ten_years_is_the_longest(connection: pika.BlockingConnection) -> None:
    longest = 315_360_000_000
    for argument in ("x-expires", "x-message-ttl"):
        connection.channel().queue_declare("", exclusive=True, arguments={argument: longest})
        with pytest.raises(ChannelClosedByBroker, match="value_too_large,315360000001"):
            connection.channel().queue_declare("", exclusive=True, arguments={argument: longest + 1})
    channel = connection.channel()
    name = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_publish("", name, b"x", pika.BasicProperties(expiration=str(longest)))
    assert channel.basic_get(name)[2] == b"x"
    channel.basic_publish("", name, b"x", pika.BasicProperties(expiration=str(longest + 1)))
    with pytest.raises(ChannelClosedByBroker, match="value_too_large,315360000001"):
        channel.queue_purge(name)


def test_a_quorum_queue_counts_deliveries_and_dead_letters_what_comes_too_often(
    connection: pika.BlockingConnection, unique: str
) -> None:
    channel = connection.channel()
    dead = channel.queue_declare("", exclusive=True).method.queue
    arguments = {
        "x-queue-type": "quorum",
        "x-delivery-limit": 2,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead,
    }
    channel.queue_declare(unique, durable=True, arguments=arguments)
    channel.basic_publish("", unique, b"x")
    assert deliveries(channel, unique, 3) == [0, 1, 2]
    deadline = time.monotonic() + LIMIT_S
    while (got := channel.basic_get(dead, auto_ack=True))[0] is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert got[1] is not None and got[1].headers is not None
    assert got[1].headers["x-death"][0]["reason"] == "delivery_limit"
    assert channel.basic_get(unique)[0] is None
    channel.queue_delete(unique)


@pytest.mark.parametrize(
    ("argument", "value", "current", "text"),
    [
        ("x-expires", 5000, None, "received the value '5000' of type 'signedint' but current is none"),
        ("x-max-priority", 3, 4, "received '3' but current is '4'"),
        ("x-overflow", "drop-head", "reject-publish", "received 'drop-head' but current is 'reject-publish'"),
        ("x-max-length-bytes", None, 9, "received none but current is the value '9' of type 'signedint'"),
        ("x-single-active-consumer", False, True, "received 'false' but current is 'true'"),
        ("x-queue-type", "quorum", "classic", "received 'quorum' but current is 'classic'"),
        ("x-queue-type", "quorum", None, "received the value 'quorum' of type 'longstr' but current is none"),
    ],
)
def test_another_value_is_refused_at_a_redeclaration(
    connection: pika.BlockingConnection, unique: str, argument: str, value: object, current: object, text: str
) -> None:
    channel = connection.channel()
    declared = {} if current is None else {argument: current}
    channel.queue_declare(unique, exclusive=True, arguments=declared)
    with pytest.raises(ChannelClosedByBroker) as refused:
        channel.queue_declare(unique, exclusive=True, arguments={} if value is None else {argument: value})
    assert refused.value.reply_code == 406
    assert (
        f"inequivalent arg '{argument}' for queue '{unique}' in vhost '/': {text}" in refused.value.reply_text
    )
