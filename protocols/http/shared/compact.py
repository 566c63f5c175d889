"""JSON answers that travel compressed, or not at all if the client has them: gzip and ETag (RFC 9110 8.8.3).

The tag is a digest of the content, so it is the same for equal content whoever made it.
"""

from __future__ import annotations

import zlib
from functools import cached_property
from hashlib import blake2b
from typing import Final

from penstock.protocols.http.server.messages import Request, Response, dumps, json_response

__all__ = ["CompactJson", "compact_json"]

_WORTH_BYTES: Final = 1024
"""Smaller bodies are not compressed."""
_GZIP: Final = 31
"""zlib's window bits for the gzip format, with the largest window."""


def compact_json(request: Request, value: object) -> Response:
    """The answer to a GET, with `value` as JSON; what several workers add up stays plain."""
    if request.part or request.others is not None:
        return json_response(value)
    return CompactJson(value).reply(request)


class CompactJson:
    """A value as JSON, encoded and compressed once for all who ask for it."""

    def __init__(self, value: object) -> None:
        self._body = dumps(value)
        self._digest = f'"{blake2b(self._body, digest_size=12).hexdigest()}"'

    @cached_property
    def _packed(self) -> bytes:
        packer = zlib.compressobj(level=1, wbits=_GZIP)
        return packer.compress(self._body) + packer.flush()

    def reply(self, request: Request) -> Response:
        """The answer to a GET: compressed if the client takes that, and none if it has the value."""
        headers = [
            ("etag", f"W/{self._digest}"),
            ("vary", "accept-encoding, authorization, cookie"),
            ("cache-control", "private, no-cache"),
        ]
        known = request.headers.get("if-none-match", "")
        if known == "*" or self._digest in [one.strip().removeprefix("W/") for one in known.split(",")]:
            return Response(304, headers=headers, content=self)
        if len(self._body) < _WORTH_BYTES or not _takes_gzip(request.headers.get("accept-encoding", "")):
            return Response(200, self._body, headers=headers, content=self)
        return Response(200, self._packed, headers=[*headers, ("content-encoding", "gzip")], content=self)


def _takes_gzip(accepted: str) -> bool:
    """Whether Accept-Encoding names gzip with a weight above 0 (RFC 9110 12.5.3)."""
    for one in accepted.split(","):
        coding, _, weight = one.partition(";")
        if coding.strip().lower() in ("gzip", "x-gzip"):
            name, _, value = weight.partition("=")
            try:
                return name.strip().lower() != "q" or float(value) > 0
            except ValueError:
                return False
    return False
