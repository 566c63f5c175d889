"""Declaring and consuming with arguments, names and repetitions. Each holds on both brokers."""

from __future__ import annotations

import pytest
from pamqp.commands import Basic, Exchange, Queue

from tests.support.amqp_client import Closed
from tests.support.amqp_peer import Peer

# Declaring


def test_a_passive_declaration_looks_at_nothing_but_the_name(peer: Peer, unique: str) -> None:
    peer.queue(unique)
    passive = Queue.Declare(
        queue=unique, passive=True, durable=True, auto_delete=True, arguments={"x-max-length": 1}
    )
    assert isinstance(peer.call(1, passive), Queue.DeclareOk)
    exchange = Exchange.Declare(exchange="amq.fanout", exchange_type="direct", passive=True, internal=True)
    assert isinstance(peer.call(1, exchange), Exchange.DeclareOk)


def test_the_empty_name_is_the_queue_declared_last(peer: Peer) -> None:
    peer.queue()
    name = peer.queue()
    peer.call(1, Queue.Bind(queue="", exchange="amq.direct", routing_key=""))
    peer.publish(1, "amq.direct", name, b"by its name")
    peer.until_ready(name, 1)
    assert peer.get("") == ("by its name", False, 1)
    peer.consume("", "c")
    peer.publish(1, "", name, b"a")
    assert peer.take(1) == ["a"]
    assert isinstance(peer.call(1, Queue.Purge(queue="")), Queue.PurgeOk)
    assert isinstance(peer.call(1, Queue.Delete(queue="")), Queue.DeleteOk)


def test_a_name_may_have_255_bytes(peer: Peer) -> None:
    name = "q" * 255
    assert peer.queue(name) == name
    peer.put(name, "a")
    assert peer.get(name) == ("a", False, 1)


ARGUMENTS: dict[str, tuple[object, object, str]] = {
    "x-message-ttl": (100_000, 200_000, "signedint"),
    "x-expires": (100_000, 200_000, "signedint"),
    "x-max-length": (1_000, 2_000, "short"),
    "x-max-length-bytes": (2**40, 2**41, "long"),
    "x-max-priority": (5, 6, "byte"),
    "x-overflow": ("drop-head", "reject-publish", "longstr"),
    "x-dead-letter-exchange": ("amq.direct", "amq.fanout", "longstr"),
    "x-dead-letter-routing-key": ("a", "b", "longstr"),
    "x-single-active-consumer": (True, False, "bool"),
}
"""Argument: its value, another one, and what RabbitMQ calls their type: this client sends integers as the
smallest that holds them.
"""


def _said(value: object, type_: str, *, alone: bool) -> str:
    if value is None:
        return "none"
    text = str(value).lower() if type_ == "bool" else str(value)
    return f"the value '{text}' of type '{type_}'" if alone else f"'{text}'"


@pytest.mark.parametrize("other", ["another value", "none", "new"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_that_is_not_as_declared_is_named(peer: Peer, unique: str, name: str, other: str) -> None:
    first, second, type_ = ARGUMENTS[name]
    # A routing key needs its exchange.
    base = {"x-dead-letter-exchange": "amq.direct"} if name == "x-dead-letter-routing-key" else {}
    current, received = {
        "another value": (first, second),
        "none": (first, None),
        "new": (None, second),
    }[other]

    def declare(value: object) -> None:
        arguments = base if value is None else {**base, name: value}
        peer.call(1, Queue.Declare(queue=unique, exclusive=True, arguments=arguments))  # type: ignore[arg-type]

    declare(current)
    declare(current)
    with pytest.raises(Closed) as closed:
        declare(received)
    assert closed.value == Closed(
        "channel",
        406,
        f"PRECONDITION_FAILED - inequivalent arg '{name}' for queue '{unique}' in vhost '/': received "
        f"{_said(received, type_, alone=current is None)} but current is "
        f"{_said(current, type_, alone=received is None)}",
        50,
        10,
    )


# Arguments of consumers and queues that mean little


def test_no_local_is_ignored(peer: Peer) -> None:
    queue = peer.queue()
    peer.call(1, Basic.Consume(queue=queue, consumer_tag="c", no_local=True, no_ack=True))
    peer.put(queue, "from this connection")
    while not peer.delivered:
        peer.sync(1)
    assert peer.delivered[0].body == b"from this connection"


@pytest.mark.parametrize("value", [1, 2])
def test_a_queue_version_is_accepted(peer: Peer, value: int) -> None:
    peer.call(1, Queue.Declare(queue="", exclusive=True, arguments={"x-queue-version": value}))
