"""JSON answers that travel compressed, or not at all if the client has them: gzip and ETag (RFC 9110 8.8.3).

The tag is a digest of the content, so it is the same for equal content whoever made it.
"""

from __future__ import annotations

import zlib
from hashlib import blake2b
from typing import Final

from penstock.protocols.http.server.messages import Request, Response, dumps, json_response

__all__ = ["compact_json"]

_WORTH_BYTES: Final = 1024
"""Smaller bodies are not compressed."""
_GZIP: Final = 31
"""zlib's window bits for the gzip format, with the largest window."""


def compact_json(request: Request, value: object) -> Response:
    """The answer to a GET, with `value` as JSON; what several workers add up stays plain."""
    if request.part or request.others is not None:
        return json_response(value)
    body = dumps(value)
    tag = f'W/"{blake2b(body, digest_size=12).hexdigest()}"'
    headers = [
        ("etag", tag),
        ("vary", "accept-encoding, authorization, cookie"),
        ("cache-control", "private, no-cache"),
    ]
    known = request.headers.get("if-none-match", "")
    if known == "*" or tag.removeprefix("W/") in [one.strip().removeprefix("W/") for one in known.split(",")]:
        return Response(304, headers=headers)
    if len(body) >= _WORTH_BYTES and _takes_gzip(request.headers.get("accept-encoding", "")):
        packer = zlib.compressobj(level=1, wbits=_GZIP)
        body = packer.compress(body) + packer.flush()
        headers.append(("content-encoding", "gzip"))
    return Response(200, body, headers=headers)


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
