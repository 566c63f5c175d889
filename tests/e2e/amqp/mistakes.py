"""The mistakes of `tests/golden/amqp-errors.json`, each as a function on a connection with channel 1 open.

A function that returns made a mistake the broker accepts; a `Closed` that it lets through is the broker's
answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pamqp import commands
from pamqp.base import Frame
from pamqp.commands import Basic, Channel, Confirm, Exchange, Queue, Tx
from pamqp.common import FieldTable

from tests.support.amqp_client import Closed, Connection

Mistake = Callable[[Connection], None]

MISTAKES: dict[str, Mistake] = {}


def mistake(name: str) -> Callable[[Mistake], Mistake]:
    """Register the function under the golden name."""

    def register(function: Mistake) -> Mistake:
        assert name not in MISTAKES, name
        MISTAKES[name] = function
        return function

    return register


def _one_call(name: str, method: Callable[[], Frame], *before: Callable[[], Frame]) -> None:
    """Register a mistake that is one method, after methods that prepare it."""

    def make(c: Connection) -> None:
        for prepare in before:
            c.call(1, prepare())
        c.call(1, method())

    MISTAKES[name] = make


def exchange(name: str, kind: str = "direct", **flags: Any) -> Callable[[], Frame]:
    """exchange.declare."""
    return lambda: Exchange.Declare(exchange=name, exchange_type=kind, **flags)


def queue(name: str = "", **flags: Any) -> Callable[[], Frame]:
    """queue.declare."""
    return lambda: Queue.Declare(queue=name, **flags)


X1 = exchange("pe.x1")
Q1 = queue("pe.q1", durable=True)

# Exchanges

_one_call("exchange.declare unknown type", exchange("pe.zz", "ZZ"))
_one_call("exchange.declare amq.* reserved", exchange("amq.foo"))
_one_call('exchange.declare default ""', exchange(""))
_one_call("exchange.declare passive missing", exchange("pe.none", passive=True))
_one_call('exchange.declare passive default ""', exchange("", passive=True))
_one_call("exchange.redeclare other type", exchange("pe.x1", "fanout"), X1)
_one_call("exchange.redeclare other durable", exchange("pe.x1", durable=True), X1)
_one_call("exchange.redeclare other auto_delete", exchange("pe.x1", auto_delete=True), X1)
_one_call("exchange.redeclare other internal", exchange("pe.x1", internal=True), X1)
_one_call(
    "exchange.redeclare other alternate-exchange",
    exchange("pe.x1", arguments={"alternate-exchange": "a"}),
    X1,
)
# 70000 because pamqp encodes smaller numbers as shorter types, which the reply text names.
_one_call(
    "exchange.declare alternate-exchange wrong type",
    exchange("pe.zz", arguments={"alternate-exchange": 70000}),
)
_one_call("exchange.redeclare other unknown arg", exchange("pe.x1", arguments={"x-nobody": 1}), X1)
_one_call("exchange.delete missing", lambda: Exchange.Delete(exchange="pe.none"))
_one_call("exchange.delete amq.direct", lambda: Exchange.Delete(exchange="amq.direct"))
_one_call('exchange.delete default ""', lambda: Exchange.Delete(exchange=""))
_one_call(
    "exchange.delete if_unused while bound",
    lambda: Exchange.Delete(exchange="pe.x3", if_unused=True),
    exchange("pe.x3"),
    queue(exclusive=True),
    lambda: Queue.Bind(exchange="pe.x3", routing_key="k"),
)


@mistake("publish to internal exchange")
def _(c: Connection) -> None:
    c.call(1, Exchange.Declare(exchange="pe.xi", internal=True))
    c.publish(1, "pe.xi", "k")
    c.sync(1)


_one_call("exchange.bind missing source", lambda: Exchange.Bind(destination="pe.x1", source="pe.none"), X1)
_one_call("exchange.bind missing dest", lambda: Exchange.Bind(destination="pe.none", source="pe.x1"), X1)
_one_call('exchange.bind from default ""', lambda: Exchange.Bind(destination="pe.x1", source=""), X1)
_one_call(
    "exchange.unbind missing binding", lambda: Exchange.Unbind(destination="pe.x1", source="amq.direct"), X1
)


def _bind_headers(x_match: str | int) -> Callable[[], Frame]:
    return lambda: Queue.Bind(exchange="amq.headers", arguments={"x-match": x_match, "a": "1"})


_one_call("exchange.bind headers x-match invalid", _bind_headers("foo"), queue(exclusive=True))
_one_call("exchange.bind headers x-match no text", _bind_headers(70000), queue(exclusive=True))
_one_call("exchange.bind headers x-match any-with-x", _bind_headers("any-with-x"), queue(exclusive=True))

# Queues

_one_call("queue.declare amq.* reserved", queue("amq.foo"))
_one_call("queue.declare passive missing", queue("pe.none", passive=True))
_one_call('queue.declare passive ""', queue("", passive=True))
_one_call("queue.redeclare other durable", queue("pe.q1"), Q1)
_one_call("queue.redeclare other auto_delete", queue("pe.q1", durable=True, auto_delete=True), Q1)
_one_call("queue.redeclare exclusive", queue("pe.q1", durable=True, exclusive=True), Q1)
_one_call(
    "queue.redeclare other x-message-ttl",
    queue("pe.q1", durable=True, arguments={"x-message-ttl": 70000}),
    Q1,
)
_one_call("queue.redeclare unknown arg", queue("pe.q1", durable=True, arguments={"x-nobody": 1}), Q1)
_one_call(
    "queue.redeclare x-queue-type classic",
    queue("pe.q1", durable=True, arguments={"x-queue-type": "classic"}),
    Q1,
)


def _argument(shown: str, name: str, value: Any) -> None:
    arguments: FieldTable = {name: value}
    _one_call(f"queue.declare {name}={shown}", queue(exclusive=True, arguments=arguments))


_argument("-1", "x-message-ttl", -1)
_argument("'a'", "x-message-ttl", "a")
_argument("1099511627776", "x-message-ttl", 1 << 40)
_argument("0", "x-expires", 0)
_argument("-1", "x-expires", -1)
_argument("-1", "x-max-length", -1)
_argument("'a'", "x-max-length-bytes", "a")
_argument("'foo'", "x-overflow", "foo")
_argument("'reject-publish-dlx'", "x-overflow", "reject-publish-dlx")
_argument("70000", "x-dead-letter-exchange", 70000)
_argument("'k'", "x-dead-letter-routing-key", "k")
_argument("1", "x-unknown", 1)
_argument("256", "x-max-priority", 256)
_argument("-1", "x-max-priority", -1)
_argument("'yes'", "x-single-active-consumer", "yes")
_argument("'1Q'", "x-max-age", "1Q")
_argument("3", "x-delivery-limit", 3)
_argument("'foo'", "x-queue-type", "foo")
for _kind in ("quorum", "stream"):
    _one_call(
        f"queue.declare {_kind} server-named durable", queue(durable=True, arguments={"x-queue-type": _kind})
    )
    _one_call(f"queue.declare {_kind} non-durable", queue("pe.zz", arguments={"x-queue-type": _kind}))
for _argument_name, _value, _shown in (
    ("x-max-priority", 3, ""),
    ("x-dead-letter-strategy", "foo", "='foo'"),
):
    _one_call(
        f"queue.declare quorum + {_argument_name}{_shown}",
        queue("pe.q1", durable=True, arguments={"x-queue-type": "quorum", _argument_name: _value}),
    )
_one_call(
    "queue.declare stream + x-message-ttl",
    queue("pe.zz", durable=True, arguments={"x-queue-type": "stream", "x-message-ttl": 5}),
)


def _locked(what: str, method: Callable[[], Frame]) -> None:
    """Register what another connection does to an exclusive queue."""

    def make(c: Connection) -> None:
        with Connection(c.socket.getpeername()[1]) as owner:
            owner.call(owner.channel(), Queue.Declare(queue="pe.excl", exclusive=True))
            c.call(1, method())

    MISTAKES[f"exclusive queue: {what} by other conn"] = make


_locked("declare", queue("pe.excl", exclusive=True))
_locked("passive", queue("pe.excl", passive=True))
_locked("consume", lambda: Basic.Consume(queue="pe.excl"))
_locked("get", lambda: Basic.Get(queue="pe.excl"))
_locked("delete", lambda: Queue.Delete(queue="pe.excl"))
_locked("bind", lambda: Queue.Bind(queue="pe.excl", exchange="amq.direct", routing_key="k"))
_locked("purge", lambda: Queue.Purge(queue="pe.excl"))


@mistake("exclusive queue: publish by other conn")
def _(c: Connection) -> None:
    with Connection(c.socket.getpeername()[1]) as owner:
        owner.call(owner.channel(), Queue.Declare(queue="pe.excl", exclusive=True))
        c.publish(1, "", "pe.excl")
        c.sync(1)


_one_call("queue.delete missing", lambda: Queue.Delete(queue="pe.none"))
_one_call("queue.purge missing", lambda: Queue.Purge(queue="pe.none"))


@mistake("queue.delete if_empty non-empty")
def _(c: Connection) -> None:
    name = _declared(c)
    c.publish(1, "", name)
    c.sync(1)
    c.call(1, Queue.Delete(queue=name, if_empty=True))


@mistake("queue.delete if_unused in use")
def _(c: Connection) -> None:
    name = _declared(c)
    c.call(1, Basic.Consume(queue=name))
    c.call(1, Queue.Delete(queue=name, if_unused=True))


_one_call("queue.bind missing exchange", lambda: Queue.Bind(queue="pe.q1", exchange="pe.none"), Q1)
_one_call("queue.bind missing queue", lambda: Queue.Bind(queue="pe.none", exchange="amq.direct"))
_one_call('queue.bind to default ""', lambda: Queue.Bind(queue="pe.q1", exchange=""), Q1)
_one_call("queue.unbind missing binding", lambda: Queue.Unbind(queue="pe.q1", exchange="amq.direct"), Q1)
_one_call(
    'queue "" shortcut without prior declare: bind', lambda: Queue.Bind(queue="", exchange="amq.direct")
)
_one_call('queue "" shortcut without prior declare: get', lambda: Basic.Get(queue=""))

# Publishing


@mistake("publish missing exchange")
def _(c: Connection) -> None:
    c.publish(1, "pe.none", "k")
    c.sync(1)


@mistake("publish immediate=true")
def _(c: Connection) -> None:
    c.publish(1, "", "pe.none", immediate=True)
    c.sync(1)


@mistake('publish bad expiration "abc"')
def _(c: Connection) -> None:
    c.publish(1, "", "pe.none", properties=Basic.Properties(expiration="abc"))
    c.sync(1)


@mistake('publish expiration "-1"')
def _(c: Connection) -> None:
    c.publish(1, "", "pe.none", properties=Basic.Properties(expiration="-1"))
    c.sync(1)


def _publish(name: str, **properties: Any) -> None:
    """Register a mistake that is one property of a message."""

    def make(c: Connection) -> None:
        c.publish(1, "", "pe.none", properties=Basic.Properties(**properties))
        c.sync(1)

    MISTAKES[name] = make


_publish("publish user_id of another user", user_id="bob")
_publish("publish CC header not array", headers={"CC": "k"})
_publish("publish CC header array of ints", headers={"CC": [70000]})
_publish("reply-to amq.rabbitmq.reply-to w/o consumer", reply_to="amq.rabbitmq.reply-to")


@mistake("publish mandatory unroutable -> basic.return")
def _(c: Connection) -> None:
    c.publish(1, "", "pe.none", b"body", mandatory=True)
    returned = c.message()
    assert isinstance(returned.method, Basic.Return)
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key, returned.body) == ("", "pe.none", b"body")


@mistake("confirm + mandatory unroutable")
def _(c: Connection) -> None:
    c.call(1, Confirm.Select())
    c.publish(1, "", "pe.none", b"body", mandatory=True)
    assert isinstance(c.message().method, Basic.Return)
    ack = c.wait_for(Basic.Ack)
    assert ack.delivery_tag == 1


# Consuming and settling

_one_call("consume missing queue", lambda: Basic.Consume(queue="pe.none"))


@mistake("consumer tag reuse")
def _(c: Connection) -> None:
    name = _declared(c)
    c.call(1, Basic.Consume(queue=name, consumer_tag="t"))
    c.call(1, Basic.Consume(queue=name, consumer_tag="t"))


@mistake("exclusive consume when already consumed")
def _(c: Connection) -> None:
    name = _declared(c)
    c.call(1, Basic.Consume(queue=name))
    c.call(1, Basic.Consume(queue=name, exclusive=True))


@mistake("consume when exclusively consumed")
def _(c: Connection) -> None:
    name = _declared(c)
    c.call(1, Basic.Consume(queue=name, exclusive=True))
    c.call(1, Basic.Consume(queue=name))


def _consume(name: str = "", **flags: Any) -> Callable[[], Frame]:
    return lambda: Basic.Consume(queue=name, **flags)


REPLY_TO = "amq.rabbitmq.reply-to"
SAC = queue("pe.q2", exclusive=True, arguments={"x-single-active-consumer": True})

_one_call("consume amq.rabbitmq.reply-to with acks", _consume(REPLY_TO))
_one_call(
    "consume amq.rabbitmq.reply-to twice", _consume(REPLY_TO, no_ack=True), _consume(REPLY_TO, no_ack=True)
)
_one_call("passive declare unknown amq.rabbitmq.reply-to.x", queue(f"{REPLY_TO}.g2dkAA", passive=True))
_one_call("consume x-priority not int", _consume("pe.q1", arguments={"x-priority": "high"}), Q1)
_one_call("exclusive consume on SAC queue", _consume("pe.q2", exclusive=True), SAC)
_one_call("basic.get on SAC queue (classic)", lambda: Basic.Get(queue="pe.q2"), SAC)
_one_call("tx.commit without select", Tx.Commit)
_one_call("tx.rollback without select", Tx.Rollback)
_one_call("confirm.select after tx.select", Confirm.Select, Tx.Select)
_one_call("tx.select after confirm.select", Tx.Select, Confirm.Select)
_one_call("tx.select twice", Tx.Select, Tx.Select)
_one_call("cancel unknown tag", lambda: Basic.Cancel(consumer_tag="nobody"))
_one_call("get missing queue", lambda: Basic.Get(queue="pe.none"))


def _settle(name: str, method: Callable[[], Frame]) -> None:
    def make(c: Connection) -> None:
        c.send(1, method())
        c.sync(1)

    MISTAKES[name] = make


_settle("ack unknown tag", lambda: Basic.Ack(99))
_settle("ack tag 0 multiple with nothing", lambda: Basic.Ack(0, True))
_settle("ack tag 0 not multiple", lambda: Basic.Ack(0, False))
_settle("nack unknown tag", lambda: Basic.Nack(99))
_settle("reject unknown tag", lambda: Basic.Reject(99))


@mistake("double ack")
def _(c: Connection) -> None:
    name = _declared(c)
    c.publish(1, "", name)
    c.sync(1)
    c.send(1, Basic.Get(queue=name))
    assert c.message().body == b"x"
    c.send(1, Basic.Ack(1), Basic.Ack(1))
    c.sync(1)


_one_call("qos prefetch_size!=0", lambda: Basic.Qos(10, 0, False))
_one_call("qos global=true", lambda: Basic.Qos(0, 5, True))
_one_call("recover requeue=false", lambda: Basic.Recover(False))

# Channels and connections

_one_call("channel.flow active=false", lambda: Channel.Flow(False))
_one_call("channel.flow active=true", lambda: Channel.Flow(True))
_one_call("channel.open twice", Channel.Open)


@mistake("method on unopened channel")
def _(c: Connection) -> None:
    c.call(7, Queue.Declare(queue="pe.none"))


@mistake("queue.declare on channel 0")
def _(c: Connection) -> None:
    c.call(0, Queue.Declare(queue="pe.none"))


@mistake("connection.close on channel 1")
def _(c: Connection) -> None:
    c.call(1, commands.Connection.Close(200, "", 0, 0))


@mistake("auth: wrong password")
def _(c: Connection) -> None:
    Connection(c.socket.getpeername()[1], password="wrong")


@mistake("auth: unknown user")
def _(c: Connection) -> None:
    Connection(c.socket.getpeername()[1], user="nobody", password="guest")


@mistake("open: missing vhost")
def _(c: Connection) -> None:
    Connection(c.socket.getpeername()[1], vhost="nope")


def _declared(c: Connection) -> str:
    """A server-named exclusive queue."""
    answer = c.call(1, Queue.Declare(exclusive=True))
    assert isinstance(answer, Queue.DeclareOk)
    return answer.queue


def make(c: Connection, name: str) -> dict[str, object]:
    """Make the mistake and say what came of it, in the form of the golden file."""
    try:
        MISTAKES[name](c)
    except Closed as closed:
        return {
            "scope": closed.scope,
            "code": closed.code,
            "text": closed.text,
            "class": closed.class_id,
            "method": closed.method_id,
        }
    return {"scope": "none"}
