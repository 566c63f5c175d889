"""The methods of AMQP 0-9-1 with RabbitMQ's extensions: names, ids, fields.

A client's method is decoded into its NamedTuple by `decode`; the server's are encoded by `encode`. The
letters of each field list are those of `_tables.pyx`. basic.publish, basic.ack, basic.nack, basic.reject and
whatever has content are the kernel's (`_codec.pyx`) and not here.

Source: amqp-rabbitmq-0.9.1.json (AMQP 0-9-1 plus confirm, nack, exchange.bind, blocked, update-secret).
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from penstock.protocols.amqp._tables import decode_fields, encode_fields
from penstock.protocols.amqp.values import Table, Value

__all__ = ["METHODS", "NAMES", "Index", "Method", "decode", "encode"]

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

METHODS: Final[dict[Index, tuple[type[Method], str]]] = {
    (10, 11): (StartOk, "tsSs"),
    (10, 21): (SecureOk, "S"),
    (10, 31): (TuneOk, "hlh"),
    (10, 40): (ConnectionOpen, "ssb"),
    (10, 50): (Close, "hshh"),
    (10, 51): (CloseOk, ""),
    (10, 70): (UpdateSecret, "Ss"),
    (20, 10): (ChannelOpen, "s"),
    (20, 20): (Flow, "b"),
    (20, 21): (FlowOk, "b"),
    (20, 40): (Close, "hshh"),
    (20, 41): (CloseOk, ""),
    (30, 10): (AccessRequest, "sbbbbb"),
    (40, 10): (ExchangeDeclare, "hssbbbbbt"),
    (40, 20): (ExchangeDelete, "hsbb"),
    (40, 30): (ExchangeBind, "hsssbt"),
    (40, 40): (ExchangeUnbind, "hsssbt"),
    (50, 10): (QueueDeclare, "hsbbbbbt"),
    (50, 20): (QueueBind, "hsssbt"),
    (50, 30): (QueuePurge, "hsb"),
    (50, 40): (QueueDelete, "hsbbb"),
    (50, 50): (QueueUnbind, "hssst"),
    (60, 10): (Qos, "lhb"),
    (60, 20): (Consume, "hssbbbbt"),
    (60, 30): (Cancel, "sb"),
    (60, 31): (CancelOk, "s"),
    (60, 70): (Get, "hsb"),
    (60, 100): (RecoverAsync, "b"),
    (60, 110): (Recover, "b"),
    (85, 10): (ConfirmSelect, "b"),
    (90, 10): (TxSelect, ""),
    (90, 20): (TxCommit, ""),
    (90, 30): (TxRollback, ""),
}
"""What a client may send outside the kernel's hot path: the tuple it becomes, and its letters."""

NAMES: Final[dict[str, tuple[Index, str]]] = {
    "connection.start": ((10, 10), "ootSS"),
    "connection.tune": ((10, 30), "hlh"),
    "connection.open-ok": ((10, 41), "s"),
    "connection.close": ((10, 50), "hshh"),
    "connection.close-ok": ((10, 51), ""),
    "connection.blocked": ((10, 60), "s"),
    "connection.unblocked": ((10, 61), ""),
    "connection.update-secret-ok": ((10, 71), ""),
    "channel.open-ok": ((20, 11), "S"),
    "channel.flow-ok": ((20, 21), "b"),
    "channel.close": ((20, 40), "hshh"),
    "channel.close-ok": ((20, 41), ""),
    "access.request-ok": ((30, 11), "h"),
    "exchange.declare-ok": ((40, 11), ""),
    "exchange.delete-ok": ((40, 21), ""),
    "exchange.bind-ok": ((40, 31), ""),
    "exchange.unbind-ok": ((40, 51), ""),
    "queue.declare-ok": ((50, 11), "sll"),
    "queue.bind-ok": ((50, 21), ""),
    "queue.purge-ok": ((50, 31), "l"),
    "queue.delete-ok": ((50, 41), "l"),
    "queue.unbind-ok": ((50, 51), ""),
    "basic.qos-ok": ((60, 11), ""),
    "basic.consume-ok": ((60, 21), "s"),
    "basic.cancel": ((60, 30), "sb"),
    "basic.cancel-ok": ((60, 31), "s"),
    "basic.get-empty": ((60, 72), "s"),
    "basic.recover-ok": ((60, 111), ""),
    "confirm.select-ok": ((85, 11), ""),
}
"""What the server sends outside the kernel: ids and letters."""


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
