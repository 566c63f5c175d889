"""Every error of the layers below as AMQP says it: reply code, scope (channel or connection), text.

Texts are RabbitMQ's, observed on 3.10.8 and, where the two differ, those of 3.13 and 4: clients and
frameworks match on them. `answer` is total over the errors of the router, the subscriptions and the log;
anything else is an internal error (541) and a bug.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from penstock.errors import LogError, PenstockError, ProtocolError
from penstock.protocols.headers.errors import HeaderRefused
from penstock.protocols.properties._tables import (
    Byte,
    ByteArray,
    Long,
    Short,
    Timestamp,
    UnsignedByte,
    UnsignedInt,
    UnsignedShort,
)
from penstock.router import errors as router
from penstock.router.names import text, wire
from penstock.subscriptions import errors as subscriptions

__all__ = ["NAMES", "AmqpError", "Dropped", "answer", "frame_fault", "hard", "soft"]

NAMES: Final = {
    311: "CONTENT_TOO_LARGE",
    312: "NO_ROUTE",
    313: "NO_CONSUMERS",
    320: "CONNECTION_FORCED",
    402: "INVALID_PATH",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    501: "FRAME_ERROR",
    502: "SYNTAX_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
}

_TEXT_MAX: Final = 255


class AmqpError(ProtocolError):
    """Closes the channel (`soft`) or the connection with a reply code."""

    def __init__(self, code: int, text: str, *, hard: bool, index: tuple[int, int] | None = None) -> None:
        """`index` is the method blamed; None = the one that was being handled."""
        super().__init__(text)
        self.code = code
        self.hard = hard
        self.index = index

    @property
    def reply_text(self) -> str:
        """The text of the close method: NAME - text, at most 255 bytes."""
        name = NAMES[self.code]
        text = f"{name} - {self.message}" if self.message else name
        return text.encode("utf-8", "surrogateescape")[:_TEXT_MAX].decode("utf-8", "ignore")


class Dropped(ProtocolError):
    """The socket is closed without a word, as RabbitMQ does for methods that do not exist."""


def soft(code: int, text: str) -> AmqpError:
    """A channel error."""
    return AmqpError(code, text, hard=False)


def hard(code: int, text: str, index: tuple[int, int] | None = None) -> AmqpError:
    """A connection error."""
    return AmqpError(code, text, hard=True, index=index)


def answer(error: PenstockError) -> AmqpError:
    """The code and text for `error`."""
    if isinstance(error, AmqpError):
        return error
    for kind in type(error).__mro__:
        make = _ANSWERS.get(kind)
        if make is not None:
            return make(error)
    return hard(541, "")


def _not_found(error: router.NotFound) -> AmqpError:
    if error.kind == "vhost":
        return hard(530, f"vhost {error.name} not found")
    return soft(404, f"no {error.kind} '{error.name}' in vhost '{error.vhost}'")


def _access_refused(error: router.AccessRefused) -> AmqpError:
    if error.kind == "vhost":
        return hard(530, f"access to vhost '{error.name}' refused for user '{error.user}'")
    return soft(
        403,
        f"{error.operation} access to {error.kind} '{error.name}' in vhost '{error.vhost}' "
        f"refused for user '{error.user}'",
    )


def _topic_refused(error: router.TopicRefused) -> AmqpError:
    return soft(
        403,
        f"{error.operation} access to topic '{text(error.key)}' in exchange '{error.name}' "
        f"in vhost '{error.vhost}' refused for user '{error.user}'",
    )


def _authentication_refused(_: router.AuthenticationRefused) -> AmqpError:
    return hard(
        403,
        "Login was refused using authentication mechanism PLAIN. For details see the broker logfile.",
        (0, 0),
    )


def _resource_locked(error: router.ResourceLocked) -> AmqpError:
    return soft(
        405,
        f"cannot obtain exclusive access to locked queue '{error.name}' in vhost '{error.vhost}'. It could "
        "be originally declared on another connection or the exclusive property value does not match that of "
        "the original declaration.",
    )


def _inequivalent(error: router.Inequivalent) -> AmqpError:
    if error.received is None or error.current is None:
        received, current = _described(error.received), _described(error.current)
    else:
        received, current = f"'{_plain(error.received)}'", f"'{_plain(error.current)}'"
    return soft(
        406,
        f"inequivalent arg '{error.argument}' for {error.kind} '{error.name}' in vhost '{error.vhost}': "
        f"received {received} but current is {current}",
    )


def _invalid_argument(error: router.InvalidArgument) -> AmqpError:
    kind, name, vhost, argument = error.kind, error.name, error.vhost, error.argument
    if error.problem == "invalid_type":
        what = type_name(error.value)
        return soft(406, f"invalid type '{what}' for arg '{argument}' in {kind} '{name}' in vhost '{vhost}'")
    where = f"invalid arg '{argument}' for {kind} '{name}' in vhost '{vhost}'"
    match error.problem:
        case "not_for_type":
            return soft(406, f"{where} of queue type rabbit_{error.queue_type}_queue")
        case "value_negative" | "value_zero" | "value_too_large" | "max_value_exceeded":
            why = f"{{{error.problem},{_plain(error.value)}}}"
        case "no_exchange_type":
            return soft(406, f"Invalid argument, '{argument}' must be an existing exchange type")
        case "expected_integer":
            why = f'"expected integer, got {type_name(error.value)}"'
        case "unacceptable_type":
            why = f"{{unacceptable_type,{type_name(error.value)}}}"
        case "unsupported_mode" | "unsupported_version":
            why = f"\"unsupported queue {error.problem.rpartition('_')[2]} '{_plain(error.value)}'\""
        case _:
            why = error.problem
    return soft(406, f"{where}: {why}")


def _limit_reached(error: router.LimitReached) -> AmqpError:
    match error.limit:
        case "vhost-connections":
            refused = f"access to vhost '{error.vhost}' refused for user '{error.user}'"
            return hard(530, f"{refused}: connection limit ({error.most}) is reached")
        case "user-connections":
            refused = f"connection refused for user '{error.user}'"
            return hard(530, f"{refused}: user connection limit ({error.most}) is reached")
        case "user-channels":
            return hard(
                530,
                f"number of channels opened for user '{error.user}' has reached the maximum allowed user "
                f"limit of ({error.most})",
                (0, 0),
            )
        case "vhost-queues":
            return soft(
                406,
                f"cannot declare queue '{error.name}': queue limit in vhost '{error.vhost}' ({error.most}) "
                "is reached",
            )


def _invalid_match(error: router.InvalidMatch) -> AmqpError:
    value = error.value
    if not isinstance(value, str | bytes):
        what = type_name(value)
        return soft(406, f"Invalid x-match field type {what} (value {_plain(value)}); expected longstr")
    shown = f'<<"{_plain(value)}">>'
    return soft(406, f"Invalid x-match field value {shown}; expected all, any, all-with-x, or any-with-x")


def _invalid_hash(error: router.InvalidHash) -> AmqpError:
    if error.property is None:
        return soft(406, "hash-header and hash-property are mutually exclusive")
    return soft(406, f"Unsupported property: {error.property}")


def _invalid_length(error: router.InvalidLength) -> AmqpError:
    value = error.value
    shown = erlang(wire(value)) if isinstance(value, str) else _plain(value)
    return soft(406, f"Invalid argument {shown}, '{error.argument}' must be a positive integer")


def _invalid_binding(error: router.InvalidBinding) -> AmqpError:
    texts = {
        "key_no_integer": f"The binding key must be an integer: {erlang(wire(error.value))}",
        "key_not_positive": "The binding key must be greater than 0",
        "key_too_large": "The binding key must be less than 2147483648",
        "key_not_empty": f"Non empty binding '{error.value}' key not permitted",
        "queue_type": f"Queue type rabbit_{error.value}_queue not valid for this exchange type",
        "no_queue": "Destination not found",
    }
    return soft(406, texts[error.problem])


def _unknown_type(error: router.UnknownType) -> AmqpError:
    if error.kind == "exchange":
        return soft(406, f"unknown exchange type '{error.type}'")
    return soft(
        406,
        f"invalid arg 'x-queue-type' for queue '{error.name}' in vhost '{error.vhost}': "
        f"unsupported queue type '{error.type}'",
    )


_ANSWERS: Final[dict[type, Callable[[Any], AmqpError]]] = {
    router.NotFound: _not_found,
    router.AccessRefused: _access_refused,
    router.TopicRefused: _topic_refused,
    router.AuthenticationRefused: _authentication_refused,
    router.ReservedName: lambda e: soft(403, f"{e.kind} name '{e.name}' contains reserved prefix 'amq.*'"),
    router.DefaultExchange: lambda _: soft(403, "operation not permitted on the default exchange"),
    router.SystemExchange: lambda e: soft(
        403, f"deletion of system exchange '{e.name}' in vhost '{e.vhost}' not allowed"
    ),
    router.InternalExchange: lambda e: soft(
        403, f"cannot publish to internal exchange '{e.name}' in vhost '{e.vhost}'"
    ),
    router.ResourceLocked: _resource_locked,
    router.Inequivalent: _inequivalent,
    router.InUse: lambda e: soft(406, f"{e.kind} '{e.name}' in vhost '{e.vhost}' in use"),
    router.NotEmpty: lambda e: soft(406, f"queue '{e.name}' in vhost '{e.vhost}' not empty"),
    router.InvalidArgument: _invalid_argument,
    router.InvalidProperty: lambda e: soft(
        406, f"invalid property '{e.property}' for queue '{e.name}' in vhost '{e.vhost}'"
    ),
    router.ServerNameRefused: lambda e: soft(
        406, f"Cannot declare a server-named queue for type rabbit_{e.queue_type}_queue"
    ),
    router.UnknownType: _unknown_type,
    router.InvalidMatch: _invalid_match,
    router.InvalidHash: _invalid_hash,
    router.InvalidLength: _invalid_length,
    router.InvalidBinding: _invalid_binding,
    router.InvalidPattern: lambda e: soft(406, f"a pattern of {e.words} words, more than {e.limit}"),
    router.InvalidRegex: lambda e: soft(406, str(e)),
    router.InvalidParameter: lambda e: soft(406, str(e)),
    router.LimitReached: _limit_reached,
    router.BackfillRefused: lambda e: soft(406, e.message),
    HeaderRefused: lambda e: soft(406, e.message),
    router.HalfRefused: lambda e: soft(406, e.message),
    router.HalfUnknown: lambda e: soft(404, e.message),
    router.TooManyHalves: lambda e: soft(406, e.message),
    router.RoutingError: lambda e: soft(406, str(e)),
    subscriptions.ConsumerRefused: lambda e: soft(403, str(e.message)),
    subscriptions.NotForStreams: lambda e: hard(
        540, f"{e.operation} not supported by stream queues queue '{e.name}' in vhost '{e.vhost}'"
    ),
    subscriptions.QueueGone: lambda e: soft(404, str(e.message)),
    subscriptions.SubscriptionError: lambda e: soft(406, str(e)),
    LogError: lambda e: hard(541, e.message),
}


# Framing


def frame_fault(name: str, frame_type: int, octets: bytes, detail: int, frame_max: int) -> AmqpError:
    """The connection error of a FAULT event of the codec."""
    shown = f"type {frame_type}, all octets = {erlang(octets)}: "
    match name:
        case "frame_too_large":
            why = f"{{frame_too_large,{detail},{frame_max - 8}}}"
            return hard(501, f"type {frame_type}, all octets = <<>>: {why}", (0, 0))
        case "invalid_frame_end_marker":
            return hard(501, shown + f"{{invalid_frame_end_marker,{detail}}}", (0, 0))
        case "unknown_frame":
            return hard(501, shown + "unknown_frame", (0, 0))
        case "heartbeat":
            return hard(505, f"type {frame_type}, all octets = {erlang(octets)}", (0, 0))
        case "no_method":
            return hard(505, "expected method frame, got non method frame instead", (0, 0))
        case "no_header":
            text = "expected content header for class 60, got non content header frame instead"
            return hard(505, text, (60, 40))
        case "no_body":
            return hard(505, "expected content body, got non content body frame instead", (60, 40))
        case "header_class":
            text = f"expected content header for class 60, got one for class {detail} instead"
            return hard(505, text, (60, 40))
        case "immediate":
            return hard(540, "immediate=true", (60, 40))
        case "body_too_large":
            return hard(501, f"the body is longer than the {detail} bytes its header announced", (60, 40))
        case "too_much_held":
            return hard(506, f"more than {detail} bytes of messages under way", (60, 40))
        case "settle":
            return hard(501, f"cannot decode {erlang(octets)}", (60, detail))
        case "publish" | "header" | "properties":
            return hard(501, f"cannot decode {erlang(octets)}", (60, 40))
    raise AssertionError(name)


def erlang(octets: bytes) -> str:
    """Bytes as Erlang prints them: RabbitMQ's texts show them so."""
    if octets and all(32 <= octet < 127 and octet not in b'"\\' for octet in octets):
        return f'<<"{octets.decode()}">>'
    return f"<<{','.join(map(str, octets))}>>"


# Values


_TYPE_NAMES: Final[dict[type, str]] = {
    type(None): "void",
    bool: "bool",
    Timestamp: "timestamp",
    Byte: "byte",
    UnsignedByte: "unsignedbyte",
    Short: "short",
    UnsignedShort: "unsignedshort",
    UnsignedInt: "unsignedint",
    Long: "long",
    float: "double",
    Decimal: "decimal",
    list: "array",
    tuple: "array",
    dict: "table",
    ByteArray: "binary",
}


def type_name(value: object) -> str:
    """RabbitMQ's name of the field type that a value of a table has."""
    if type(value) is int:
        return "signedint" if -(2**31) <= value < 2**31 else "long"
    return _TYPE_NAMES.get(type(value), "longstr")


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def _described(value: object) -> str:
    return "none" if value is None else f"the value '{_plain(value)}' of type '{type_name(value)}'"
