"""The methods of AMQP 0-9-1 with RabbitMQ's extensions: names, ids, fields.

A client's method is decoded into its NamedTuple by `decode`; the server's are encoded by `encode`.
basic.publish, basic.ack, basic.nack, basic.reject and whatever has content are the kernel's (`_codec.pyx`)
and not here.

Which methods there are, with which fields of which types, is pamqp's catalogue, made from RabbitMQ's
machine-readable specification. The bytes are read by our own `_tables.pyx`: pamqp's table decoder takes
quadratic time (0.6 s for one frame of 128 KiB) and recurses as deep as the peer likes, and its classes refuse
queue names that RabbitMQ takes, so it must not see what a peer sent.

Source: amqp-rabbitmq-0.9.1.json (AMQP 0-9-1 plus confirm, nack, exchange.bind, blocked, update-secret).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, TypeAlias

from pamqp import commands
from pamqp.base import Frame

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

_LETTERS: Final = {
    "bit": "b",
    "octet": "o",
    "short": "h",
    "long": "l",
    "shortstr": "s",
    "longstr": "S",
    "table": "t",
}
"""pamqp's words for the types of fields, as the letters of `_tables.pyx`."""


_CATALOGUE: Final[dict[int, type[Frame]]] = commands.INDEX_MAPPING


def _letters(index: Index) -> str:
    kind = _CATALOGUE[index[0] << 16 | index[1]]
    return "".join(_LETTERS[kind.amqp_type(field)] for field in kind.attributes())


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

# access.request left the specification; RabbitMQ still answers it, and pamqp does not know it.
METHODS: Final[dict[Index, tuple[type[Method], str]]] = {
    (30, 10): (AccessRequest, "sbbbbb"),
    **{index: (kind, _letters(index)) for index, kind in _DECODED.items()},
}
"""The methods that a client may send outside the kernel's hot path: the tuple it becomes, and its letters."""

KNOWN: Final = frozenset({*METHODS, (60, 40), (60, 80), (60, 90), (60, 120)})
"""All a client may send: these, and basic.publish, ack, reject and nack, which are the kernel's."""


def _spec_name(name: str) -> str:
    """The specification's name: "Queue.DeclareOk" is queue.declare-ok."""
    class_name, _, method = name.partition(".")
    return f"{class_name.lower()}.{re.sub('(?<!^)(?=[A-Z])', '-', method).lower()}"


NAMES: Final[dict[str, tuple[Index, str]]] = {
    "access.request-ok": ((30, 11), "h"),
    **{
        _spec_name(kind.name): ((number >> 16, number & 0xFFFF), _letters((number >> 16, number & 0xFFFF)))
        for number, kind in _CATALOGUE.items()
        if all(kind.amqp_type(field) in _LETTERS for field in kind.attributes())
    },
}
"""The methods that are encoded outside the kernel: ids and letters."""


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
