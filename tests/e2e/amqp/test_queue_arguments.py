"""Each argument of queue.declare with each kind of wrong value, and on a queue type that does not know it.

The reply names the queue, the argument and what is wrong with it, as RabbitMQ's does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

INTEGER = '"expected integer, got longstr"'
NO_TEXT = "{unacceptable_type,signedint}"

WRONG: list[tuple[str, str, object, str]] = [
    # Queue type ("*": none is named), argument, value, what the text says of it.
    *(
        (type_, argument, value, why)
        for type_, argument in (
            ("*", "x-expires"),
            ("*", "x-message-ttl"),
            ("*", "x-max-length"),
            ("*", "x-max-length-bytes"),
            ("*", "x-max-priority"),
            ("*", "x-queue-version"),
            ("quorum", "x-max-in-memory-length"),
            ("quorum", "x-max-in-memory-bytes"),
            ("quorum", "x-quorum-initial-group-size"),
            ("stream", "x-initial-cluster-size"),
            ("stream", "x-stream-max-segment-size-bytes"),
        )
        for value, why in ((-1, "{value_negative,-1}"), ("a", INTEGER))
    ),
    *(
        (type_, argument, 5, NO_TEXT)
        for type_, argument in (
            ("*", "x-overflow"),
            ("*", "x-queue-mode"),
            ("*", "x-queue-type"),
            ("*", "x-single-active-consumer"),
            ("quorum", "x-dead-letter-strategy"),
            ("quorum", "x-queue-leader-locator"),
            ("stream", "x-queue-leader-locator"),
            ("stream", "x-max-age"),
        )
    ),
    ("*", "x-expires", 0, "{value_zero,0}"),
    ("*", "x-expires", 2**40, f"{{value_too_large,{2**40}}}"),
    ("*", "x-message-ttl", 2**40, f"{{value_too_large,{2**40}}}"),
    ("*", "x-max-priority", 256, "{max_value_exceeded,256}"),
    ("*", "x-overflow", "drop-tail", "invalid_overflow"),
    ("*", "x-queue-mode", "eager", "\"unsupported queue mode 'eager'\""),
    ("*", "x-queue-version", 0, "\"unsupported queue version '0'\""),
    ("*", "x-queue-version", 3, "\"unsupported queue version '3'\""),
    ("*", "x-dead-letter-routing-key", "k", "routing_key_but_no_dlx_defined"),
    ("quorum", "x-dead-letter-strategy", "sometimes", "invalid_dlx_strategy"),
    ("quorum", "x-queue-leader-locator", "nowhere", "invalid_queue_locator_arg"),
    ("quorum", "x-quorum-initial-group-size", 0, "{value_zero,0}"),
    ("stream", "x-initial-cluster-size", 0, "{value_zero,0}"),
    ("stream", "x-max-age", "5", "invalid_max_age"),
    ("stream", "x-max-age", "1X", "invalid_max_age"),
]

NOT_FOR: list[tuple[str, str, object]] = [
    *(
        ("classic", argument, value)
        for argument, value in (
            ("x-dead-letter-strategy", "at-least-once"),
            ("x-max-in-memory-length", 5),
            ("x-max-in-memory-bytes", 5),
            ("x-quorum-initial-group-size", 3),
            ("x-initial-cluster-size", 3),
            ("x-max-age", "1D"),
            ("x-stream-max-segment-size-bytes", 5),
        )
    ),
    *(
        ("quorum", argument, value)
        for argument, value in (
            ("x-queue-mode", "lazy"),
            ("x-queue-version", 2),
            ("x-initial-cluster-size", 3),
            ("x-max-age", "1D"),
            ("x-stream-max-segment-size-bytes", 5),
        )
    ),
    *(
        ("stream", argument, value)
        for argument, value in (
            ("x-expires", 5000),
            ("x-message-ttl", 5000),
            ("x-max-length", 5),
            ("x-max-priority", 5),
            ("x-overflow", "drop-head"),
            ("x-dead-letter-exchange", "x"),
            ("x-queue-mode", "lazy"),
            ("x-queue-version", 2),
            ("x-single-active-consumer", True),
            ("x-max-in-memory-length", 5),
            ("x-quorum-initial-group-size", 3),
            ("x-delivery-limit", 5),
        )
    ),
]

FINE: list[tuple[str, str, object]] = [
    ("classic", "x-queue-version", 1),
    ("classic", "x-queue-version", 2),
    ("classic", "x-queue-mode", "lazy"),
    ("classic", "x-max-priority", 0),
    ("quorum", "x-delivery-limit", -1),
    ("quorum", "x-overflow", "reject-publish-dlx"),
    *(("quorum", "x-queue-leader-locator", value) for value in ("client-local", "balanced", "random")),
    ("stream", "x-queue-leader-locator", "least-leaders"),
    ("stream", "x-max-age", "7D"),
    ("stream", "x-initial-cluster-size", 3),
    ("stream", "x-stream-filter-size-bytes", 32),
]


@pytest.fixture
def connection(amqp_port: int) -> Iterator[pika.BlockingConnection]:
    """A connection, on which a mistake here closes a channel and no more."""
    with closing(pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port))) as connection:
        yield connection


def refusal(connection: pika.BlockingConnection, name: str, type_: str, argument: str, value: object) -> str:
    """The text of the error that a declaration ends with."""
    arguments = {argument: value} if type_ == "*" else {"x-queue-type": type_, argument: value}
    channel = connection.channel()
    with pytest.raises(ChannelClosedByBroker) as refused:
        channel.queue_declare(name, durable=True, arguments=arguments)
    assert refused.value.reply_code == 406
    return str(refused.value.reply_text)


@pytest.mark.parametrize(("type_", "argument", "value", "why"), WRONG)
def test_a_wrong_value_is_named(
    connection: pika.BlockingConnection, unique: str, type_: str, argument: str, value: object, why: str
) -> None:
    assert refusal(connection, unique, type_, argument, value) == (
        f"PRECONDITION_FAILED - invalid arg '{argument}' for queue '{unique}' in vhost '/': {why}"
    )


@pytest.mark.parametrize(("type_", "argument", "value"), NOT_FOR)
def test_an_argument_of_other_queue_types_is_named(
    connection: pika.BlockingConnection, unique: str, type_: str, argument: str, value: object
) -> None:
    assert refusal(connection, unique, type_, argument, value) == (
        f"PRECONDITION_FAILED - invalid arg '{argument}' for queue '{unique}' in vhost '/' "
        f"of queue type rabbit_{type_}_queue"
    )


@pytest.mark.parametrize(("type_", "argument", "value"), FINE)
def test_a_possible_value_is_taken(
    connection: pika.BlockingConnection, unique: str, type_: str, argument: str, value: object
) -> None:
    channel = connection.channel()
    channel.queue_declare(unique, durable=True, arguments={"x-queue-type": type_, argument: value})
    channel.queue_delete(unique)
    channel.close()
