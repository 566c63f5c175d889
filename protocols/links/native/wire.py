"""A client's connection of the native protocol, which gives frames as they come.

    size u32, of what follows | kind u8 | flags u8 = 0 | reserved u16 = 0 | id u32 | payload

Source: docs/reference/native.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Mapping
from typing import Any, Final, Self

import orjson

from penstock.protocols.links.errors import LinkError
from penstock.protocols.native.codec import kinds

__all__ = ["Connection", "Frame", "Refused"]

Frame = tuple[int, int, bytes]
"""Kind, id and payload."""

_HEAD: Final = struct.Struct(">IBBHI")
_READ: Final = 256 << 10
_LOGIN_S: Final = 30.0
_SILENCE_S: Final = 30.0
_FRAME_MAX: Final = 1 << 28


class Connection:
    """Logged in. Use it as a context; `open` makes it."""

    def __init__(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """`name`: of the end, for errors."""
        self.name: Final = name
        self.frame_max = 1 << 20
        """The largest frame that may be sent, in bytes."""
        self._reader = reader
        self._writer = writer
        self._buffer = b""
        self._requests = 0

    @classmethod
    async def open(
        cls,
        name: str,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        login: Mapping[str, str],
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None,
    ) -> Self:
        """Connect and log in.

        Args:
            name: Of the end, for errors.
            host: Of the gateway.
            port: Of its listener.
            tls: None = without TLS.
            login: `user`, `password` and `vhost`.
            streams: In place of a connection to `host`.

        Raises:
            LinkError: it cannot be reached, or refuses the login.

        """
        try:
            async with asyncio.timeout(_LOGIN_S):
                if streams is None:
                    streams = await asyncio.open_connection(
                        host, port, limit=_READ, ssl=tls, server_hostname=host if tls else None
                    )
                made = cls(name, *streams)
                made._writer.write(kinds.PREFACE)
                capabilities = ["numbered", "queues", "max_unacked", kinds.STORED]
                hello = {"versions": [kinds.VERSION], "client": "penstock-link", "capabilities": capabilities}
                made.send(kinds.HELLO, 0, orjson.dumps(hello))
                made.send(kinds.LOGIN, 0, orjson.dumps({"mechanism": "PLAIN", **login}))
                welcome = await made._answer(kinds.WELCOME, 0)
                made.frame_max = int(welcome["max_frame_bytes"])
                await made._answer(kinds.READY, 0)
                return made
        except OSError as error:
            told = f"{name}: no connection to {host}:{port}: {error.strerror or error}"
            raise LinkError(told) from None
        except TimeoutError:
            raise LinkError(f"{name}: no answer within {_LOGIN_S:g} s") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()

    def send(self, kind: int, id: int, *parts: bytes) -> None:
        """Send a frame. Raises LinkError: the connection is lost."""
        if self._writer.is_closing():  # uvloop would raise a RuntimeError
            raise LinkError(f"{self.name}: the connection is lost")
        size = 8 + sum(map(len, parts))
        self._writer.writelines((_HEAD.pack(size, kind, 0, 0, id), *parts))

    async def drain(self) -> None:
        """Wait until the gateway takes more. Raises LinkError: the connection is lost."""
        try:
            await self._writer.drain()
        except OSError as error:
            raise self._lost(error) from None

    async def request(self, do: str, **fields: Any) -> dict[str, Any]:
        """Ask, before anything is consumed. Raises LinkError: it is refused; `code` says why."""
        self.ask(do, **fields)
        return await self._answer(kinds.RESPONSE, self._requests)

    def ask(self, do: str, **fields: Any) -> None:
        """Ask; the answer is among the frames. Raises LinkError: the connection is lost."""
        self._requests += 1
        asked = {"do": do, **{name: value for name, value in fields.items() if value is not None}}
        self.send(kinds.REQUEST, self._requests, orjson.dumps(asked))

    async def _answer(self, kind: int, id: int) -> dict[str, Any]:
        while True:
            for at, (came, its_id, payload) in enumerate(frames := await self.frames()):
                if (came, its_id) == (kind, id):
                    if frames[at + 1 :]:
                        self._buffer = b"".join(map(_packed, frames[at + 1 :])) + self._buffer
                    found: dict[str, Any] = orjson.loads(payload)
                    return found

    async def frames(self) -> list[Frame]:
        """The next whole frames, at least one. PINGs are answered.

        Raises:
            LinkError: the connection is lost or silent, or the gateway refuses something.

        """
        pinged = False
        while True:
            if found := self._split():
                return found
            try:
                async with asyncio.timeout(_SILENCE_S):
                    piece = await self._reader.read(_READ)
            except TimeoutError:
                if pinged:
                    raise LinkError(f"{self.name}: the gateway is silent") from None
                pinged = True
                self.send(kinds.PING, 0)
                continue
            except OSError as error:
                raise self._lost(error) from None
            if not piece:
                raise LinkError(f"{self.name}: the connection was ended there")
            pinged = False
            self._buffer += piece

    def _split(self) -> list[Frame]:
        buffer, at, found = self._buffer, 0, []
        while len(buffer) - at >= _HEAD.size:
            size, kind, _, _, id = _HEAD.unpack_from(buffer, at)
            if not 8 <= size <= _FRAME_MAX:
                raise LinkError(f"{self.name}: it does not speak the native protocol")
            end = at + 4 + size
            if end > len(buffer):
                break
            payload = buffer[at + _HEAD.size : end]
            at = end
            if kind == kinds.PING:
                self.send(kinds.PONG, id)
            elif kind in (kinds.ERROR, kinds.REFUSED):
                self._buffer = buffer[at:]
                raise Refused(self.name, orjson.loads(payload))
            elif kind != kinds.PONG:
                found.append((kind, id, payload))
        self._buffer = buffer[at:]
        return found

    def _lost(self, error: OSError) -> LinkError:
        return LinkError(f"{self.name}: the connection is lost: {error.strerror or error}")


def _packed(frame: Frame) -> bytes:
    kind, id, payload = frame
    return _HEAD.pack(8 + len(payload), kind, 0, 0, id) + payload


class Refused(LinkError):
    """The gateway refused a request or a batch."""

    def __init__(self, name: str, error: Mapping[str, Any]) -> None:
        super().__init__(f"{name}: {error.get('message')}", remedy=str(error.get("remedy", "")))
        self.code = str(error.get("code", ""))
        """As docs/reference/native.md has it."""
