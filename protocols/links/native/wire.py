"""A client's connection of the native protocol, which gives frames as they come.

    size u32, of what follows | kind u8 | flags u8 = 0 | reserved u16 = 0 | id u32 | payload

Source: docs/reference/native.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import orjson

from penstock.protocols.links.errors import LinkError
from penstock.protocols.links.stream import Stream
from penstock.protocols.native.codec import kinds

if TYPE_CHECKING:
    from penstock.protocols.links.native._packer import Packer

__all__ = ["Connection", "Frame", "Refused"]

Frame = tuple[int, int, bytes]
"""Kind, id and payload."""

_HEAD: Final = struct.Struct(">IBBHI")
_LOGIN_S: Final = 30.0
_SILENCE_S: Final = 30.0
_FRAME_MAX: Final = 1 << 28


class Connection:
    """Logged in. Use it as a context; `open` makes it."""

    def __init__(self, name: str, stream: Stream) -> None:
        """`name`: of the end, for errors."""
        self.name: Final = name
        self.frame_max = 1 << 20
        """The largest frame that may be sent, in bytes."""
        self.log_id = ""
        """The gateway's log, which positions are of; empty: the gateway does not say."""
        self._stream = stream
        self._requests = 0

    @classmethod
    async def open(
        cls,
        name: str,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        login: Mapping[str, str],
        stream: Stream | None = None,
    ) -> Self:
        """Connect and log in.

        Args:
            name: Of the end, for errors.
            host: Of the gateway.
            port: Of its listener.
            tls: None = without TLS.
            login: `user`, `password` and `vhost`.
            stream: In place of a connection to `host`.

        Raises:
            LinkError: it cannot be reached, or refuses the login.

        """
        try:
            async with asyncio.timeout(_LOGIN_S):
                made = cls(name, stream or await Stream.connect(host, port, tls))
                made.write((kinds.PREFACE,))
                capabilities = ["numbered", "queues", "max_unacked", kinds.STORED, kinds.LOG_ID]
                hello = {"versions": [kinds.VERSION], "client": "penstock-link", "capabilities": capabilities}
                made.send(kinds.HELLO, 0, orjson.dumps(hello))
                made.send(kinds.LOGIN, 0, orjson.dumps({"mechanism": "PLAIN", **login}))
                welcome = await made._answer(kinds.WELCOME, 0)
                made.frame_max = int(welcome["max_frame_bytes"])
                ready = await made._answer(kinds.READY, 0)
                made.log_id = str(ready.get("log", ""))
                return made
        except OSError as error:
            told = f"{name}: no connection to {host}:{port}: {error.strerror or error}"
            raise LinkError(told) from None
        except TimeoutError:
            raise LinkError(f"{name}: no answer within {_LOGIN_S:g} s") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._stream.close()
        self._stream.abort()

    def send(self, kind: int, id: int, *parts: bytes) -> None:
        """Send a frame. Raises LinkError: the connection is lost."""
        size = 8 + sum(map(len, parts))
        self.write((_HEAD.pack(size, kind, 0, 0, id), *parts))

    def write(self, frames: Sequence[bytes]) -> None:
        """Send whole frames as they are. Raises LinkError: the connection is lost."""
        try:
            self._stream.write(*frames)
        except OSError as error:
            raise self._lost(error) from None

    async def drain(self) -> None:
        """Wait until the gateway takes more. Raises LinkError: the connection is lost."""
        try:
            await self._stream.drain()
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
            # One at a time: those behind the answer are for `frames`.
            for came, its_id, payload in await self.frames(1):
                if (came, its_id) == (kind, id):
                    found: dict[str, Any] = orjson.loads(payload)
                    return found

    async def frames(self, most: int = 1 << 30) -> list[Frame]:
        """The next whole frames, at least one. PINGs are answered.

        Raises:
            LinkError: the connection is lost or silent, or the gateway refuses something.

        """
        while True:
            if found := self._heard(self._split(await self._read(), most)):
                return found

    async def packed(self, packer: Packer) -> list[Frame]:
        """Let a packer take the next frames: those that are not deliveries.

        Raises:
            ValueError: a delivery is damaged.
            OutOfOrder: of the deliveries.
            LinkError: as `frames`.

        """
        self._stream.used(packer.take(await self._read()))
        return self._heard(packer.others)

    async def _read(self) -> memoryview:
        for pinged in (False, True):
            try:
                return await self._stream.read(_SILENCE_S)
            except TimeoutError:
                if pinged:
                    break
                self.send(kinds.PING, 0)
            except OSError as error:
                raise self._lost(error) from None
        raise LinkError(f"{self.name}: the gateway is silent")

    def _split(self, data: memoryview, most: int) -> list[Frame]:
        at, found = 0, list[Frame]()
        while len(data) - at >= _HEAD.size and len(found) < most:
            size, kind, _, _, id = _HEAD.unpack_from(data, at)
            if not 8 <= size <= _FRAME_MAX:
                raise LinkError(f"{self.name}: it does not speak the native protocol")
            end = at + 4 + size
            if end > len(data):
                break
            found.append((kind, id, bytes(data[at + _HEAD.size : end])))
            at = end
        self._stream.used(at, more=len(found) == most)
        return found

    def _heard(self, frames: list[Frame]) -> list[Frame]:
        """Those that are for the caller."""
        found = []
        for kind, id, payload in frames:
            if kind == kinds.PING:
                self.send(kinds.PONG, id)
            elif kind in (kinds.ERROR, kinds.REFUSED):
                raise Refused(self.name, orjson.loads(payload))
            elif kind != kinds.PONG:
                found.append((kind, id, payload))
        return found

    def _lost(self, error: OSError) -> LinkError:
        return LinkError(f"{self.name}: the connection is lost: {error.strerror or error}")


class Refused(LinkError):
    """The gateway refused a request or a batch."""

    def __init__(self, name: str, error: Mapping[str, Any]) -> None:
        super().__init__(f"{name}: {error.get('message')}", remedy=str(error.get("remedy", "")))
        self.code = str(error.get("code", ""))
        """As docs/reference/native.md has it."""
