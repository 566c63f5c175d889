"""A request and its response, as messages.

A request has the method in its field `subject` (GET, PUT, POST, DELETE), the path in `to`, "$me" in
`reply-to`, and a value as its body. Its response has the status in `subject`, the request's message-id in
`correlation-id`, and a value as its body: a map, a list, null, or the text of an error.

Source: HTTP over AMQP, working draft 06; RabbitMQ 4's rabbit_amqp_management.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_to_bytes

from penstock.lazy_dataclass import dataclass
from penstock.protocols.amqp10.codec.errors import FieldError
from penstock.protocols.amqp10.messages import sections as s

__all__ = ["ME", "Refused", "Request", "Response", "checked", "decoded", "parse_request"]

ME: Final = "$me"
"""The address of the receiver that is the sender's pair."""
_NAME_MAX: Final = 255
_MESSAGE_ID, _TO, _SUBJECT, _REPLY_TO = 0, 2, 3, 4


class Refused(Exception):
    """The request cannot be carried out: a status and a text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """See the module."""

    id: Any
    method: str
    segments: tuple[str, ...]
    """Of the path, still percent-encoded."""
    query: dict[str, str]
    body: Any


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a request."""

    status: int
    body: Any = None
    lsn: int = 0
    """It may leave when this is on disk; 0 = at once."""
    after: Callable[[Callable[[bool], None]], None] | None = None
    """Work that it waits for: called with what is to be called when that is done, or has failed."""

    def encoded(self, request_id: Any) -> bytes:
        """The message of it, for the request of this message-id."""
        return (
            s.encode_section(s.PROPERTIES, [None, None, None, str(self.status), None, request_id])
            + s.encode_section(s.APPLICATION_PROPERTIES, {"http:response": "1.1"})
            + s.encode_section(s.VALUE, self.body)
        )


def parse_request(payload: bytes) -> Request:
    """The request that a message is. Raises DecodeError, FieldError: it is none."""
    # RabbitMQ's Python client puts the body of a request without one in front of the properties.
    found = {code: value for code, value, _ in s.read_sections(payload)}
    fields = found.get(s.PROPERTIES, []) + [None] * 5
    method, target = fields[_SUBJECT], fields[_TO]
    if not isinstance(method, str) or not isinstance(target, str) or not target.startswith("/"):
        raise FieldError("a request has its method in subject, and a path in to")
    if fields[_REPLY_TO] != ME:
        raise FieldError(f"the reply-to of a request is '{ME}'")
    path, _, query = target.partition("?")
    body = found.get(s.VALUE, found.get(s.DATA))
    return Request(fields[_MESSAGE_ID], method, tuple(path[1:].split("/")), dict(parse_qsl(query)), body)


def decoded(segment: str) -> str:
    """The name that a segment of a path has. Raises Refused: it is no UTF-8, or too long."""
    try:
        return checked(unquote_to_bytes(segment).decode())
    except UnicodeDecodeError:
        raise Refused(400, f"'{segment}' is no UTF-8 in percent-encoding") from None


def checked(name: str) -> str:
    """A name or a key, which has at most 255 bytes. Raises Refused."""
    if len(name.encode("utf-8", "surrogatepass")) > _NAME_MAX:
        raise Refused(400, f"a name or key of more than {_NAME_MAX} bytes: '{name[:64]}...'")
    return name
