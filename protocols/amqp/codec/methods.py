"""The methods of AMQP 0-9-1 with RabbitMQ's extensions: names, ids, fields.

A client's method is decoded into its NamedTuple by `decode`; the server's are encoded by `encode`.
basic.publish, basic.ack, basic.nack, basic.reject and whatever has content are the kernel's (`_codec.pyx`)
and not here.

A test compares the table with pamqp's catalogue, which is made from RabbitMQ's machine-readable
specification. pamqp itself must not see what a peer sent: its table decoder takes quadratic time (0.6 s for
one frame of 128 KiB) and recurses as deep as the peer likes, and its classes refuse queue names that RabbitMQ
takes.

Source: amqp-rabbitmq-0.9.1.json (AMQP 0-9-1 plus confirm, nack, exchange.bind, blocked, update-secret).
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from penstock.protocols.properties._tables import decode_fields, encode_fields
from penstock.protocols.properties.values import Table, Value

__all__ = ["KNOWN", "METHODS", "NAMES", "Index", "Method", "decode", "encode"]

Index: TypeAlias = tuple[int, int]
"""Class id and method id."""


class StartOk(NamedTuple):
    client_properties: Table
    mechanism: str
    response: bytes
    locale: str


class SecureOk(NamedTuple):
    response: bytes


class TuneOk(NamedTuple):
    channel_max: int
    frame_max: int
    heartbeat: int


class ConnectionOpen(NamedTuple):
    virtual_host: str
    reserved_1: str
    reserved_2: bool


class Close(NamedTuple):
    """connection.close and channel.close."""

    reply_code: int
    reply_text: str
    class_id: int
    method_id: int


class CloseOk(NamedTuple):
    """connection.close-ok and channel.close-ok."""


class UpdateSecret(NamedTuple):
    new_secret: bytes
    reason: str


class ChannelOpen(NamedTuple):
    reserved_1: str


class Flow(NamedTuple):
    active: bool


class FlowOk(NamedTuple):
    active: bool


class AccessRequest(NamedTuple):
    realm: str
    exclusive: bool
    passive: bool
    active: bool
    write: bool
    read: bool


class ExchangeDeclare(NamedTuple):
    ticket: int
    exchange: str
    type: str
    passive: bool
    durable: bool
    auto_delete: bool
    internal: bool
    nowait: bool
    arguments: Table


class ExchangeDelete(NamedTuple):
    ticket: int
    exchange: str
    if_unused: bool
    nowait: bool


class ExchangeBind(NamedTuple):
    """exchange.bind and exchange.unbind."""

    ticket: int
    destination: str
    source: str
    routing_key: str
    nowait: bool
    arguments: Table


class ExchangeUnbind(ExchangeBind):
    pass


class QueueDeclare(NamedTuple):
    ticket: int
    queue: str
    passive: bool
    durable: bool
    exclusive: bool
    auto_delete: bool
    nowait: bool
    arguments: Table


class QueueBind(NamedTuple):
    ticket: int
    queue: str
    exchange: str
    routing_key: str
    nowait: bool
    arguments: Table


class QueueUnbind(NamedTuple):
    ticket: int
    queue: str
    exchange: str
    routing_key: str
    arguments: Table


class QueuePurge(NamedTuple):
    ticket: int
    queue: str
    nowait: bool


class QueueDelete(NamedTuple):
    ticket: int
    queue: str
    if_unused: bool
    if_empty: bool
    nowait: bool


class Qos(NamedTuple):
    prefetch_size: int
    prefetch_count: int
    global_: bool


class Consume(NamedTuple):
    ticket: int
    queue: str
    consumer_tag: str
    no_local: bool
    no_ack: bool
    exclusive: bool
    nowait: bool
    arguments: Table


class Cancel(NamedTuple):
    consumer_tag: str
    nowait: bool


class CancelOk(NamedTuple):
    consumer_tag: str


class Get(NamedTuple):
    ticket: int
    queue: str
    no_ack: bool


class RecoverAsync(NamedTuple):
    requeue: bool


class Recover(NamedTuple):
    requeue: bool


class ConfirmSelect(NamedTuple):
    nowait: bool


class TxSelect(NamedTuple):
    pass


class TxCommit(NamedTuple):
    pass


class TxRollback(NamedTuple):
    pass


Method: TypeAlias = (
    StartOk
    | SecureOk
    | TuneOk
    | ConnectionOpen
    | Close
    | CloseOk
    | UpdateSecret
    | ChannelOpen
    | Flow
    | FlowOk
    | AccessRequest
    | ExchangeDeclare
    | ExchangeDelete
    | ExchangeBind
    | QueueDeclare
    | QueueBind
    | QueueUnbind
    | QueuePurge
    | QueueDelete
    | Qos
    | Consume
    | Cancel
    | CancelOk
    | Get
    | RecoverAsync
    | Recover
    | ConfirmSelect
    | TxSelect
    | TxCommit
    | TxRollback
)

NAMES: Final[dict[str, tuple[Index, str]]] = {
    "connection.start": ((10, 10), "ootSS"),
    "connection.start-ok": ((10, 11), "tsSs"),
    "connection.secure": ((10, 20), "S"),
    "connection.secure-ok": ((10, 21), "S"),
    "connection.tune": ((10, 30), "hlh"),
    "connection.tune-ok": ((10, 31), "hlh"),
    "connection.open": ((10, 40), "ssb"),
    "connection.open-ok": ((10, 41), "s"),
    "connection.close": ((10, 50), "hshh"),
    "connection.close-ok": ((10, 51), ""),
    "connection.blocked": ((10, 60), "s"),
    "connection.unblocked": ((10, 61), ""),
    "connection.update-secret": ((10, 70), "Ss"),
    "connection.update-secret-ok": ((10, 71), ""),
    "channel.open": ((20, 10), "s"),
    "channel.open-ok": ((20, 11), "S"),
    "channel.flow": ((20, 20), "b"),
    "channel.flow-ok": ((20, 21), "b"),
    "channel.close": ((20, 40), "hshh"),
    "channel.close-ok": ((20, 41), ""),
    "access.request": ((30, 10), "sbbbbb"),
    "access.request-ok": ((30, 11), "h"),
    "exchange.declare": ((40, 10), "hssbbbbbt"),
    "exchange.declare-ok": ((40, 11), ""),
    "exchange.delete": ((40, 20), "hsbb"),
    "exchange.delete-ok": ((40, 21), ""),
    "exchange.bind": ((40, 30), "hsssbt"),
    "exchange.bind-ok": ((40, 31), ""),
    "exchange.unbind": ((40, 40), "hsssbt"),
    "exchange.unbind-ok": ((40, 51), ""),
    "queue.declare": ((50, 10), "hsbbbbbt"),
    "queue.declare-ok": ((50, 11), "sll"),
    "queue.bind": ((50, 20), "hsssbt"),
    "queue.bind-ok": ((50, 21), ""),
    "queue.purge": ((50, 30), "hsb"),
    "queue.purge-ok": ((50, 31), "l"),
    "queue.delete": ((50, 40), "hsbbb"),
    "queue.delete-ok": ((50, 41), "l"),
    "queue.unbind": ((50, 50), "hssst"),
    "queue.unbind-ok": ((50, 51), ""),
    "basic.qos": ((60, 10), "lhb"),
    "basic.qos-ok": ((60, 11), ""),
    "basic.consume": ((60, 20), "hssbbbbt"),
    "basic.consume-ok": ((60, 21), "s"),
    "basic.cancel": ((60, 30), "sb"),
    "basic.cancel-ok": ((60, 31), "s"),
    "basic.publish": ((60, 40), "hssbb"),
    "basic.return": ((60, 50), "hsss"),
    "basic.get": ((60, 70), "hsb"),
    "basic.get-empty": ((60, 72), "s"),
    "basic.recover-async": ((60, 100), "b"),
    "basic.recover": ((60, 110), "b"),
    "basic.recover-ok": ((60, 111), ""),
    "confirm.select": ((85, 10), "b"),
    "confirm.select-ok": ((85, 11), ""),
    "tx.select": ((90, 10), ""),
    "tx.select-ok": ((90, 11), ""),
    "tx.commit": ((90, 20), ""),
    "tx.commit-ok": ((90, 21), ""),
    "tx.rollback": ((90, 30), ""),
    "tx.rollback-ok": ((90, 31), ""),
}
"""All methods without content: ids, and the letters of their fields as `_tables.pyx` has them."""

_DECODED: Final[dict[Index, type[Method]]] = {
    (10, 11): StartOk,
    (10, 21): SecureOk,
    (10, 31): TuneOk,
    (10, 40): ConnectionOpen,
    (10, 50): Close,
    (10, 51): CloseOk,
    (10, 70): UpdateSecret,
    (20, 10): ChannelOpen,
    (20, 20): Flow,
    (20, 21): FlowOk,
    (20, 40): Close,
    (20, 41): CloseOk,
    (30, 10): AccessRequest,  # it left the specification; RabbitMQ still answers it
    (40, 10): ExchangeDeclare,
    (40, 20): ExchangeDelete,
    (40, 30): ExchangeBind,
    (40, 40): ExchangeUnbind,
    (50, 10): QueueDeclare,
    (50, 20): QueueBind,
    (50, 30): QueuePurge,
    (50, 40): QueueDelete,
    (50, 50): QueueUnbind,
    (60, 10): Qos,
    (60, 20): Consume,
    (60, 30): Cancel,
    (60, 31): CancelOk,
    (60, 70): Get,
    (60, 100): RecoverAsync,
    (60, 110): Recover,
    (85, 10): ConfirmSelect,
    (90, 10): TxSelect,
    (90, 20): TxCommit,
    (90, 30): TxRollback,
}

_LETTERS: Final = dict(NAMES.values())
METHODS: Final[dict[Index, tuple[type[Method], str]]] = {
    index: (kind, _LETTERS[index]) for index, kind in _DECODED.items()
}
"""The methods that a client may send outside the kernel's hot path: the tuple it becomes, and its letters."""

KNOWN: Final = frozenset({*METHODS, (60, 40), (60, 80), (60, 90), (60, 120)})
"""All a client may send: these, and basic.publish, ack, reject and nack, which are the kernel's."""


def decode(index: Index, arguments: bytes, *, entries: int = 1024) -> Method:
    """The method `index` with its encoded `arguments`.

    Raises:
        KeyError: a client has no such method to send.
        TableError: the arguments are malformed or beyond the limits.

    """
    kind, letters = METHODS[index]
    return kind(*decode_fields(letters, arguments, entries=entries))  # type: ignore[arg-type]


def encode(name: str, channel: int, *values: Value) -> bytes:
    """The method frame of the server's method `name` on `channel`."""
    (class_id, method_id), letters = NAMES[name]
    payload = encode_fields(letters, values)
    size = len(payload) + 4
    return (
        b"\x01"
        + channel.to_bytes(2, "big")
        + size.to_bytes(4, "big")
        + class_id.to_bytes(2, "big")
        + method_id.to_bytes(2, "big")
        + payload
        + b"\xce"
    )
