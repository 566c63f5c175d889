"""The console's files over HTTP: read at the start, compressed when they are first asked for. A browser asks
again by ETag.

    GET /                  index.html
    GET /console/PATH      the others

They are no secret and need no login. Their headers forbid scripts, styles and connections of any other
origin, scripts in the page itself, texts that become scripts, and frames around the page (CSP 3, Trusted
Types).
"""

from __future__ import annotations

import zlib
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Final

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.server.app import HttpApp
from penstock.protocols.http.server.messages import Request, Response

__all__ = ["add", "is_open"]

_FOLDER: Final = Path(__file__).parent / "www"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Files of other types, such as licences, are not served."""
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS: Final = (
    ("content-security-policy", _POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-cache"),
    ("vary", "accept-encoding"),
)
_GZIP: Final = 31
"""zlib's window bits for the gzip format, with the largest window."""


@dataclass(frozen=True)
class _File:
    kind: str
    body: bytes
    tag: str

    @classmethod
    def read(cls, path: Path) -> _File:
        body = path.read_bytes()
        digest = blake2b(body, digest_size=12).hexdigest()
        return cls(_TYPES[path.suffix], body, f'W/"{digest}"')

    @cached_property
    def packed(self) -> bytes:
        """The body, by gzip."""
        packer = zlib.compressobj(level=9, wbits=_GZIP)
        return packer.compress(self.body) + packer.flush()

    async def serve(self, request: Request) -> Response:
        """The file, or 304 for a browser that has it."""
        headers = [*_HEADERS, ("etag", self.tag)]
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(304, headers=headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(200, self.body, self.kind, headers)
        return Response(200, self.packed, self.kind, [*headers, ("content-encoding", "gzip")])


def add(app: HttpApp) -> None:
    """Serve the console."""
    for path in sorted(_FOLDER.rglob("*")):
        if path.suffix in _TYPES:
            app.routes.add("GET", f"/console/{path.relative_to(_FOLDER)}", _File.read(path).serve)
    app.routes.add("GET", "/", _File.read(_FOLDER / "index.html").serve)


def is_open(request: Request) -> bool:
    """Whether a file of the console is asked for, which needs no login."""
    return request.method in ("GET", "HEAD") and list(request.segments[:1]) in ([], ["console"])
