"""The composite types of AMQP 1.0 that a broker meets: performatives, termini, outcomes, SASL frames.

A composite is a described list. Fields that are left out, or null, have their default. A field of the wrong
type, or a mandatory one that is missing, is a `FieldError`; fields behind the last known one, too.

Source: AMQP 1.0 part 2 sections 2.7 and 2.8, part 3 sections 3.4 and 3.5, part 4 section 4.5, part 5
section 5.3.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, Final, TypeAlias

from penstock.lazy_dataclass import dataclass
from penstock.protocols.amqp10.codec.encoding import encode, encode_list, symbols
from penstock.protocols.amqp10.codec.errors import FieldError
from penstock.protocols.amqp10.codec.values import (
    Array,
    Described,
    Symbol,
    UByte,
    UInt,
    ULong,
    UShort,
)

__all__ = [
    "Accepted",
    "Attach",
    "Begin",
    "Close",
    "Coordinator",
    "Declare",
    "Declared",
    "Detach",
    "Discharge",
    "Disposition",
    "End",
    "Error",
    "Flow",
    "Modified",
    "Open",
    "Received",
    "Rejected",
    "Released",
    "SaslChallenge",
    "SaslInit",
    "SaslMechanisms",
    "SaslOutcome",
    "SaslResponse",
    "Source",
    "Target",
    "TransactionalState",
    "Transfer",
    "composite",
    "encode_composite",
]

Map: TypeAlias = dict[Any, Any]


@dataclass(slots=True)
class Error:
    """Why a link, a session or a connection ended, or a message was rejected."""

    condition: str
    description: str | None = None
    info: Map | None = None


@dataclass(slots=True)
class Open:
    """Negotiates the connection."""

    container_id: str
    hostname: str | None = None
    max_frame_size: int = 2**32 - 1
    channel_max: int = 65535
    idle_time_out: int | None = None
    outgoing_locales: tuple[str, ...] = ()
    incoming_locales: tuple[str, ...] = ()
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: Map | None = None


@dataclass(slots=True)
class Begin:
    """Begins a session."""

    remote_channel: int | None
    next_outgoing_id: int
    incoming_window: int
    outgoing_window: int
    handle_max: int = 2**32 - 1
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: Map | None = None


@dataclass(slots=True)
class Attach:
    """Attaches a link; `role` is True for a receiver."""

    name: str
    handle: int
    role: bool
    snd_settle_mode: int = 2
    rcv_settle_mode: int = 0
    source: Any = None
    target: Any = None
    unsettled: Map | None = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: Map | None = None


@dataclass(slots=True)
class Flow:
    """Windows of a session, and credit of a link."""

    next_incoming_id: int | None
    incoming_window: int
    next_outgoing_id: int
    outgoing_window: int
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool = False
    echo: bool = False
    properties: Map | None = None


@dataclass(slots=True)
class Transfer:
    """A message, or a part of one."""

    handle: int
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool = False
    rcv_settle_mode: int | None = None
    state: Any = None
    resume: bool = False
    aborted: bool = False
    batchable: bool = False


@dataclass(slots=True)
class Disposition:
    """The state of the deliveries `first` to `last`."""

    role: bool
    first: int
    last: int | None = None
    settled: bool = False
    state: Any = None
    batchable: bool = False


@dataclass(slots=True)
class Detach:
    """Detaches a link."""

    handle: int
    closed: bool = False
    error: Error | None = None


@dataclass(slots=True)
class End:
    """Ends a session."""

    error: Error | None = None


@dataclass(slots=True)
class Close:
    """Ends the connection."""

    error: Error | None = None


@dataclass(slots=True)
class Source:
    """Where messages come from."""

    address: Any = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Map | None = None
    distribution_mode: str | None = None
    filter: Map | None = None
    default_outcome: Any = None
    outcomes: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()


@dataclass(slots=True)
class Target:
    """Where messages go."""

    address: Any = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Map | None = None
    capabilities: tuple[str, ...] = ()


@dataclass(slots=True)
class Coordinator:
    """The target that transactions are declared at."""

    capabilities: tuple[str, ...] = ()


@dataclass(slots=True)
class Received:
    """How much of a delivery arrived."""

    section_number: int
    section_offset: int


@dataclass(slots=True)
class Accepted:
    """The message was processed."""


@dataclass(slots=True)
class Rejected:
    """The message is invalid."""

    error: Error | None = None


@dataclass(slots=True)
class Released:
    """The message was not and will not be processed."""


@dataclass(slots=True)
class Modified:
    """As released, with changes to the message."""

    delivery_failed: bool = False
    undeliverable_here: bool = False
    message_annotations: Map | None = None


@dataclass(slots=True)
class Declare:
    """Begins a transaction."""

    global_id: Any = None


@dataclass(slots=True)
class Discharge:
    """Ends a transaction."""

    txn_id: bytes
    fail: bool = False


@dataclass(slots=True)
class Declared:
    """The outcome of a declare."""

    txn_id: bytes


@dataclass(slots=True)
class TransactionalState:
    """The state of a delivery within a transaction."""

    txn_id: bytes
    outcome: Any = None


@dataclass(slots=True)
class SaslMechanisms:
    """The mechanisms that the server has."""

    sasl_server_mechanisms: tuple[str, ...]


@dataclass(slots=True)
class SaslInit:
    """The mechanism that the client chose, and its first response."""

    mechanism: str
    initial_response: bytes | None = None
    hostname: str | None = None


@dataclass(slots=True)
class SaslChallenge:
    """The server's challenge."""

    challenge: bytes


@dataclass(slots=True)
class SaslResponse:
    """The client's response."""

    response: bytes


@dataclass(slots=True)
class SaslOutcome:
    """How the login ended; 0 = well."""

    code: int
    additional_data: bytes | None = None


_TERMINUS: Final = ("any", "uint", "symbol", "uint", "boolean", "map")
_TABLE: Final[dict[int, tuple[str, type, tuple[str, ...]]]] = {
    0x10: (
        "open",
        Open,
        ("string", "string", "uint", "ushort", "uint", "symbols", "symbols", "symbols", "symbols", "map"),
    ),
    0x11: ("begin", Begin, ("ushort", "uint", "uint", "uint", "uint", "symbols", "symbols", "map")),
    0x12: (
        "attach",
        Attach,
        ("string", "uint", "boolean", "ubyte", "ubyte", "composite", "composite", "map", "boolean", "uint")
        + ("ulong", "symbols", "symbols", "map"),
    ),
    0x13: (
        "flow",
        Flow,
        ("uint", "uint", "uint", "uint", "uint", "uint", "uint", "uint", "boolean", "boolean", "map"),
    ),
    0x14: (
        "transfer",
        Transfer,
        ("uint", "uint", "binary", "uint", "boolean", "boolean", "ubyte", "composite", "boolean", "boolean")
        + ("boolean",),
    ),
    0x15: ("disposition", Disposition, ("boolean", "uint", "uint", "boolean", "composite", "boolean")),
    0x16: ("detach", Detach, ("uint", "boolean", "error")),
    0x17: ("end", End, ("error",)),
    0x18: ("close", Close, ("error",)),
    0x1D: ("error", Error, ("symbol", "string", "map")),
    0x23: ("received", Received, ("uint", "ulong")),
    0x24: ("accepted", Accepted, ()),
    0x25: ("rejected", Rejected, ("error",)),
    0x26: ("released", Released, ()),
    0x27: ("modified", Modified, ("boolean", "boolean", "map")),
    0x28: ("source", Source, (*_TERMINUS, "symbol", "map", "composite", "symbols", "symbols")),
    0x29: ("target", Target, (*_TERMINUS, "symbols")),
    0x30: ("coordinator", Coordinator, ("symbols",)),
    0x31: ("declare", Declare, ("any",)),
    0x32: ("discharge", Discharge, ("binary", "boolean")),
    0x33: ("declared", Declared, ("binary",)),
    0x34: ("transactional-state", TransactionalState, ("binary", "composite")),
    0x40: ("sasl-mechanisms", SaslMechanisms, ("symbols",)),
    0x41: ("sasl-init", SaslInit, ("symbol", "binary", "string")),
    0x42: ("sasl-challenge", SaslChallenge, ("binary",)),
    0x43: ("sasl-response", SaslResponse, ("binary",)),
    0x44: ("sasl-outcome", SaslOutcome, ("ubyte", "binary")),
}
"""By descriptor: name, class, and the types of its fields in order."""

_BY_NAME: Final = {f"amqp:{name}:list": code for code, (name, _, _) in _TABLE.items()}
_CODES: Final = {made: code for code, (_, made, _) in _TABLE.items()}
_TYPES: Final[dict[str, type]] = {
    "string": str,
    "symbol": Symbol,
    "binary": bytes,
    "boolean": bool,
    "map": dict,
    "ubyte": UByte,
    "ushort": UShort,
    "uint": UInt,
    "ulong": ULong,
}
_NULLABLE: Final = frozenset(((Begin, "remote_channel"), (Flow, "next_incoming_id")))
"""Fields without a default that may be null all the same."""
_FIELDS: Final = {
    made: tuple((field.name, field.default, (made, field.name) in _NULLABLE) for field in fields(made))
    for _, made, _ in _TABLE.values()
}
"""The fields of a class in order: name, default or MISSING, whether it may be null all the same."""
_REQUIRED: Final = {
    made: tuple(at for at, (_, default, _) in enumerate(found) if default is MISSING)
    for made, found in _FIELDS.items()
}
"""The indexes of those without a default."""


def composite(value: Any) -> Any:
    """The composite that a decoded value stands for; a described value that is not known stays as it is.

    Raises:
        FieldError: no described list, or a field that is missing or of the wrong type.

    """
    if type(value) is not Described:
        raise FieldError("a composite is a described list")
    descriptor = value.descriptor
    if type(descriptor) is Symbol:
        descriptor = _BY_NAME.get(descriptor)
    known = _TABLE.get(descriptor) if type(descriptor) in (ULong, int) else None
    if known is None:
        return value
    name, made, kinds = known
    items = value.value
    if type(items) is not list or len(items) > len(kinds):
        raise FieldError(f"{name} is a list of at most {len(kinds)} fields")
    found = {}
    known_fields = _FIELDS[made]
    for (field, _, _), kind, item in zip(known_fields, kinds, items, strict=False):
        if item is not None:
            found[field] = item if type(item) is _TYPES.get(kind) else _checked(name, field, kind, item)
    for at in _REQUIRED[made]:
        field, _, nullable = known_fields[at]
        if field not in found:
            if not nullable:
                raise FieldError(f"{name} without {field.replace('_', '-')}")
            found[field] = None
    return made(**found)


def _checked(name: str, field: str, kind: str, item: Any) -> Any:
    if kind == "any":
        return item
    if kind == "composite":
        return composite(item)
    if kind == "error":
        error = composite(item)
        if type(error) is Error:
            return error
    elif kind == "symbols":
        if type(item) is Symbol:
            return (item,)
        if type(item) is Array and all(type(one) is Symbol for one in item.items):
            return tuple(item.items)
    elif type(item) is _TYPES[kind]:
        return item
    raise FieldError(f"{field.replace('_', '-')} of {name} is not of the type {kind}")


def encode_composite(value: Any) -> bytes:
    """The twin of `composite`; trailing fields with their default are left out."""
    if type(value) is Described:
        return encode(value)
    code = _CODES[type(value)]
    items = []
    kept = 0
    for (name, default, _), kind in zip(_FIELDS[type(value)], _TABLE[code][2], strict=True):
        item = getattr(value, name)
        if item is None or item == default:
            items.append(b"\x40")
            continue
        items.append(_field(kind, item))
        kept = len(items)
    return b"\x00\x53" + bytes((code,)) + encode_list(items[:kept])


def _field(kind: str, item: Any) -> bytes:
    if kind in ("composite", "error"):
        return encode_composite(item)
    if kind == "symbols":
        return encode(symbols(*item))
    if kind in ("any", "map"):
        return encode(item)
    return encode(_TYPES[kind](item) if kind != "boolean" else bool(item))
