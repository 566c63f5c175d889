"""HTTP without sockets: a session of the front end on a host that answers by hand."""

from __future__ import annotations

from collections.abc import Callable

from penstock.protocols.http.server.messages import HttpError, Request, Response
from penstock.protocols.http.server.wire.h1 import H1Session
from penstock.protocols.http.server.wire.h2 import H2Session
from penstock.protocols.net.outbuffer import OutBuffer


class Host:
    """The connection that a session needs; it records the session's calls."""

    peer_host = "127.0.0.1"

    def __init__(self, make: Callable[[Host], H1Session | H2Session]) -> None:
        self.out = OutBuffer()
        self.requests: list[Request] = []
        self.ended: str | None = None
        self.now = 0.0
        self._rest = b""
        self._again = False
        self.session = make(self)

    # Called by the session

    def dirty(self) -> None:
        pass

    def requested(self, request: Request) -> None:
        self.requests.append(request)

    def malformed(self, error: HttpError) -> Response:
        return Response(error.status, error.detail.encode(), "text/plain")

    def go_on(self) -> None:
        self._again = True

    def go_on_now(self) -> None:
        self._again = True

    def end(self, reason: str) -> None:
        if self.ended is None:
            self.ended = reason

    def date(self) -> str:
        return "Thu, 01 Jan 1970 00:00:00 GMT"

    # Called by tests

    def send(self, data: bytes, *, step: int = 0) -> None:
        """Have the session read `data`, in reads of `step` bytes (0: all at once)."""
        for at in range(0, len(data), step or len(data) or 1):
            self._rest += data[at : at + (step or len(data))]
            self._read()

    def settle(self) -> None:
        """Let it go on with what it left, as the connection would."""
        while self._again:
            self._again = False
            self._read()

    def take(self) -> bytes:
        """The bytes that the session has sent."""
        return self.out.take()

    def answer(self, body: bytes = b"ok", status: int = 200) -> bytes:
        """Answer the last request, and let the session go on; what it has sent."""
        self.session.respond(self.requests[-1], Response(status, body, "text/plain"))
        self.settle()
        return self.take()

    def _read(self) -> None:
        if self._rest:
            buffer = bytearray(self._rest)
            used = self.session.receive(buffer, len(buffer), self.now)
            self._rest = self._rest[used:]
