"""The head of an HTTP/1.1 request, taken apart by llhttp (httptools), and what is refused of it.

Refused, each with its status: a head over 16 KiB or 100 lines (431), a target over 8 KiB (414), a second Host
or Content-Length together with Transfer-Encoding (400), transfer codings other than chunked (501).

Source: RFC 9110, RFC 9112.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import httptools

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.server.messages import HttpError

__all__ = ["HEAD_MAX", "TARGET_MAX", "Head", "read_head"]

HEAD_MAX: Final = 16384
"""Bytes of a head without its target."""
TARGET_MAX: Final = 8192
_FIELDS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Head:
    """A head that could be read; not to be changed, for the next request may have the same."""

    method: str
    target: str
    headers: Mapping[str, str]
    version: str
    keep: bool
    chunked: bool
    size: int
    """Of the body; 0 when it is chunked."""
    expects: bool
    """"100 Continue" is waited for."""


class _Lines:
    """The parts of one head, from llhttp."""

    def __init__(self) -> None:
        self.target = b""
        self.fields: list[tuple[bytes, bytes]] = []
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.complete = True


def read_head(head: bytes) -> Head:
    """Take a whole head apart, with the empty line at its end.

    Raises:
        HttpError: it is no request, or one that is refused.

    """
    lines = _Lines()
    parser = httptools.HttpRequestParser(lines)
    try:
        parser.feed_data(head)
    except httptools.HttpParserUpgrade:
        pass  # another protocol is offered, and not taken: the request is answered as it is
    except httptools.HttpParserError as error:
        raise HttpError(400, "malformed", f"not an HTTP/1.1 request: {error}") from error
    if not lines.complete:
        raise HttpError(400, "malformed", "not an HTTP/1.1 request: its head does not end")
    if len(lines.target) > TARGET_MAX:
        raise HttpError(414, "uri_too_long", f"a request target of more than {TARGET_MAX} bytes")
    if len(head) - len(lines.target) > HEAD_MAX or len(lines.fields) > _FIELDS_MAX:
        raise HttpError(
            431, "headers_too_large", f"header fields over {HEAD_MAX} bytes or {_FIELDS_MAX} lines"
        )
    version = parser.get_http_version()
    if version not in ("1.0", "1.1"):
        raise HttpError(505, "malformed", f"HTTP/{version} is not spoken here; use 1.1 or 2")
    headers: dict[str, str] = {}
    for raw_name, raw_value in lines.fields:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1").strip(" \t")
        if name in headers and name in ("host", "content-length", "transfer-encoding"):
            raise HttpError(400, "malformed", f"the header {name} twice")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if version == "1.1" and "host" not in headers:
        raise HttpError(400, "malformed", "no Host header")
    tokens = {token.strip() for token in headers.get("connection", "").lower().split(",")}
    return Head(
        parser.get_method().decode("ascii"),
        lines.target.decode("latin-1"),
        headers,
        version,
        "close" not in tokens if version == "1.1" else "keep-alive" in tokens,
        "transfer-encoding" in headers,
        _size(headers),
        version == "1.1" and headers.get("expect", "").lower() == "100-continue",
    )


def _size(headers: Mapping[str, str]) -> int:
    """Of the body; 0 when it is chunked. Raises HttpError: it cannot be told."""
    coding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if coding is not None:
        if length is not None:
            raise HttpError(400, "malformed", "Content-Length together with Transfer-Encoding")
        if coding.lower() != "chunked":
            raise HttpError(501, "malformed", f"the transfer coding {coding[:64]!r}; use chunked")
    elif length is not None:
        if not (length.isascii() and length.isdigit() and len(length) <= 15):
            raise HttpError(400, "malformed", "Content-Length is not a number")
        return int(length)
    return 0
