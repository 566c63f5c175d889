"""RabbitMQ's permission matrix: each operation with exactly the permissions it needs, and without each.

The user gets patterns that match the names an operation needs and nothing else. Taking one of them away must
refuse the operation with the text that names it; taking all away with the text of the first.

Source: RabbitMQ's access control documentation, the table of operations; security advisories on what was left
out of it (alternate and dead-letter exchanges, passive declares, transactions).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import pytest
from pamqp import commands
from pamqp.base import Frame

from penstock.router.authorization.permissions import Permission, TopicPermission
from tests.support.amqp_session import Client, World

Operation = Literal["configure", "write", "read", "topic write", "topic read"]


@dataclass(frozen=True)
class Need:
    operation: Operation
    kind: str
    name: str


def c(kind: str, name: str) -> Need:
    return Need("configure", kind, name)


def w(kind: str, name: str) -> Need:
    return Need("write", kind, name)


def r(kind: str, name: str) -> Need:
    return Need("read", kind, name)


TOPIC_WRITE = Need("topic write", "exchange", "amq.topic")
TOPIC_READ = Need("topic read", "exchange", "amq.topic")

Q, X = commands.Queue, commands.Exchange

MATRIX: dict[str, tuple[Frame | str, tuple[Need, ...]]] = {
    "exchange.declare": (X.Declare(exchange="x"), (c("exchange", "x"),)),
    "exchange.declare again": (X.Declare(exchange="old"), (c("exchange", "old"),)),
    "exchange.declare with an alternate exchange": (
        X.Declare(exchange="x", arguments={"alternate-exchange": "ae"}),
        (c("exchange", "x"), r("exchange", "x"), w("exchange", "ae")),
    ),
    "exchange.delete": (X.Delete(exchange="old"), (c("exchange", "old"),)),
    "exchange.delete of none": (X.Delete(exchange="none"), (c("exchange", "none"),)),
    "exchange.bind": (
        X.Bind(destination="old", source="amq.direct"),
        (w("exchange", "old"), r("exchange", "amq.direct")),
    ),
    "exchange.bind to a topic exchange": (
        X.Bind(destination="old", source="amq.topic", routing_key="k.#"),
        (w("exchange", "old"), r("exchange", "amq.topic"), TOPIC_READ),
    ),
    "exchange.unbind": (
        X.Unbind(destination="old", source="amq.topic", routing_key="k.#"),
        (w("exchange", "old"), r("exchange", "amq.topic"), TOPIC_READ),
    ),
    "queue.declare": (Q.Declare(queue="q"), (c("queue", "q"),)),
    "queue.declare again": (Q.Declare(queue="oldq"), (c("queue", "oldq"),)),
    "queue.declare with dead letters": (
        Q.Declare(queue="q", arguments={"x-dead-letter-exchange": "dlx"}),
        (c("queue", "q"), r("queue", "q"), w("exchange", "dlx")),
    ),
    "queue.declare with dead letters to the default exchange": (
        Q.Declare(queue="q", arguments={"x-dead-letter-exchange": ""}),
        (c("queue", "q"), r("queue", "q"), w("exchange", "amq.default")),
    ),
    "queue.delete": (Q.Delete(queue="oldq"), (c("queue", "oldq"),)),
    "queue.delete of none": (Q.Delete(queue="none"), (c("queue", "none"),)),
    "queue.bind": (
        Q.Bind(queue="oldq", exchange="amq.direct"),
        (w("queue", "oldq"), r("exchange", "amq.direct")),
    ),
    "queue.bind to a topic exchange": (
        Q.Bind(queue="oldq", exchange="amq.topic", routing_key="k.#"),
        (w("queue", "oldq"), r("exchange", "amq.topic"), TOPIC_READ),
    ),
    "queue.unbind": (
        Q.Unbind(queue="oldq", exchange="amq.topic", routing_key="k.#"),
        (w("queue", "oldq"), r("exchange", "amq.topic"), TOPIC_READ),
    ),
    "queue.purge": (Q.Purge(queue="oldq"), (r("queue", "oldq"),)),
    "basic.consume": (commands.Basic.Consume(queue="oldq"), (r("queue", "oldq"),)),
    "basic.get": (commands.Basic.Get(queue="oldq"), (r("queue", "oldq"),)),
    "basic.publish": ("amq.direct", (w("exchange", "amq.direct"),)),
    "basic.publish to the default exchange": ("", (w("exchange", "amq.default"),)),
    "basic.publish to a topic exchange": ("amq.topic", (w("exchange", "amq.topic"), TOPIC_WRITE)),
}

PASSIVE: dict[str, tuple[Frame, str, str]] = {
    "exchange.declare": (X.Declare(exchange="old", passive=True), "exchange", "old"),
    "exchange.declare of none": (X.Declare(exchange="none", passive=True), "exchange", "none"),
    "queue.declare": (Q.Declare(queue="oldq", passive=True), "queue", "oldq"),
    "queue.declare of none": (Q.Declare(queue="none", passive=True), "queue", "none"),
}


def grant(world: World, needs: tuple[Need, ...]) -> None:
    """ann may do just this."""

    def pattern(operation: Operation) -> str:
        names = [need.name for need in needs if need.operation == operation]
        return f"^({'|'.join(map(re.escape, names))})$" if names else ""

    authorizer = world.broker.authorizer
    authorizer.set("ann", "/", Permission(pattern("configure"), pattern("write"), pattern("read")))
    authorizer.set_topic(
        "ann",
        "/",
        "amq.topic",
        TopicPermission(*("^k" if need in needs else "" for need in (TOPIC_WRITE, TOPIC_READ))),
    )


def refusal(need: Need) -> str:
    operation = need.operation.removeprefix("topic ")
    if need is TOPIC_WRITE or need is TOPIC_READ:
        key = "k" if need is TOPIC_WRITE else "k.#"
        what = f"topic '{key}' in exchange '{need.name}'"
    else:
        what = f"{need.kind} '{need.name}'"
    return f"ACCESS_REFUSED - {operation} access to {what} in vhost '/' refused for user 'ann'"


@pytest.fixture
def ann(world: World) -> Client:
    """A connection of ann; there are an exchange `old` and a queue `oldq`."""
    guest = world.client()
    guest.call(1, X.Declare(exchange="old"), X.DeclareOk)
    guest.call(1, Q.Declare(queue="oldq"), Q.DeclareOk)
    grant(world, ())
    return world.client(user="ann")


def attempt(ann: Client, operation: Frame | str, *, transaction: bool = False) -> object:
    """The answer: a method, or None for an accepted publish."""
    if isinstance(operation, str):
        if transaction:
            ann.call(1, commands.Tx.Select(), commands.Tx.SelectOk)
        ann.publish(operation, "k")
        if transaction:
            ann.send(1, commands.Tx.Commit())
    else:
        ann.send(1, operation)
    ann.read()
    return ann.frames.pop(0)[1] if ann.frames else None


def refused(ann: Client, operation: Frame | str) -> str:
    close = attempt(ann, operation)
    assert isinstance(close, commands.Channel.Close), close
    assert close.reply_code == 403
    blamed = commands.Basic.Publish.index if isinstance(operation, str) else operation.index
    assert (close.class_id << 16) + close.method_id == blamed
    return close.reply_text


@pytest.mark.parametrize("name", MATRIX)
def test_with_all_it_needs_it_is_done(name: str, world: World, ann: Client) -> None:
    operation, needs = MATRIX[name]
    grant(world, needs)
    answer = attempt(ann, operation)
    assert not isinstance(answer, commands.Channel.Close | commands.Connection.Close), answer
    assert (answer is None) == isinstance(operation, str)


@pytest.mark.parametrize(
    ("name", "missing"), [(name, index) for name, (_, needs) in MATRIX.items() for index in range(len(needs))]
)
def test_without_one_of_them_it_is_refused_and_named(
    name: str, missing: int, world: World, ann: Client
) -> None:
    operation, needs = MATRIX[name]
    grant(world, needs[:missing] + needs[missing + 1 :])
    assert refused(ann, operation) == refusal(needs[missing])


@pytest.mark.parametrize("name", MATRIX)
def test_with_nothing_the_first_is_named(name: str, ann: Client) -> None:
    operation, needs = MATRIX[name]
    assert refused(ann, operation) == refusal(needs[0])


@pytest.mark.parametrize("name", [name for name, row in MATRIX.items() if isinstance(row[0], str)])
def test_a_publish_in_a_transaction_needs_the_same(name: str, world: World, ann: Client) -> None:
    operation, needs = MATRIX[name]
    close = attempt(ann, operation, transaction=True)
    assert isinstance(close, commands.Channel.Close) and close.reply_text == refusal(needs[0])


@pytest.mark.parametrize("name", PASSIVE)
def test_a_passive_declare_needs_any_permission_on_the_name(name: str, world: World, ann: Client) -> None:
    operation, kind, resource = PASSIVE[name]
    assert refused(ann, operation) == refusal(c(kind, resource))
    ann.send(1, commands.Channel.CloseOk())
    for need in (c, w, r):
        grant(world, (need(kind, resource),))
        ann.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
        answer = attempt(ann, operation)
        if resource == "none":
            assert isinstance(answer, commands.Channel.Close) and answer.reply_code == 404
            ann.send(1, commands.Channel.CloseOk())
        else:
            assert isinstance(answer, Q.DeclareOk | X.DeclareOk)
            ann.call(1, commands.Channel.Close(0, "", 0, 0), commands.Channel.CloseOk)
