"""One connection to a gateway: frames in and out, the login, requests and their answers.

Knows no producer and no consumer: frames of a handle go to whoever took it with `route`. A link lives as long
as its socket; `client` makes the next one.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any, Final, Protocol

from penstock.protocols.native.codec import kinds
from penstock.sdk.connection.url import Target
from penstock.sdk.errors import ClientError, ConnectionLost, from_wire, too_large

__all__ = ["Link", "Receiver", "open_link"]

_HEAD: Final = struct.Struct(">IBBHI")
_DELIVERY_MAX: Final = 2**31
_PING_AT: Final = 2
_GONE_AT: Final = 5
"""Looks, at half of the heartbeat, at which nothing had come since the one before."""


_OF_ANOTHER_HOST: Final = (62, 64)
_EXPIRED: Final = 10
"""Of what OpenSSL finds wrong with a certificate, X509_V_ERR_*: another name or address; its time is over."""


class Receiver(Protocol):
    """The owner of a handle."""

    def frame(self, kind: int, payload: bytes) -> None:
        """A frame for it. Must not raise; ValueError: it is a DELIVER_STORED, and damaged."""


class Link(asyncio.Protocol):
    """See the module."""

    def __init__(self, lost: Callable[[Link, ClientError], None]) -> None:
        self._lost = lost
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        """The last request of each handle."""
        self._receivers: dict[int, Receiver] = {}
        self._next_request = 0
        self._out: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._writable = asyncio.Event()
        self._writable.set()
        self._error: ClientError | None = None
        self.welcome: dict[str, Any] = {}
        self.user = ""
        """The user who is logged in."""
        self.packs = ""
        """How batches are compressed; "": they are not."""
        self.stores = False
        """Batches may come as they are stored, and overdraw credit in messages by a quarter."""
        self.damaged = False
        """It was dropped, because a stored batch came that is damaged."""
        self.stranger = b""
        """How what answers begins, which is no gateway."""
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._heard = False
        self._missed = 0
        self._watch: asyncio.TimerHandle | None = None
        self._steps: asyncio.Queue[dict[str, Any] | ClientError] = asyncio.Queue()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]  # uvloop's is one by its methods only

    def data_received(self, data: bytes) -> None:
        self._heard = True
        buffer = self._buffer
        buffer += data
        at, end = 0, len(buffer)
        if not self.welcome and not _is_gateway(buffer):
            self.stranger = bytes(buffer[:16])
            del buffer[:]
            self.abort()
            return
        while end - at >= 4 and not self.damaged:
            size = int.from_bytes(buffer[at : at + 4], "big") + 4
            if end - at < size:
                break
            _, kind, _, _, handle = _HEAD.unpack_from(buffer, at)
            self._frame(kind, handle, bytes(memoryview(buffer)[at + _HEAD.size : at + size]))
            at += size
        del buffer[:at]

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        why = self._error or ConnectionLost(
            f"the connection to the gateway was lost{'' if exc is None else f': {exc}'}",
            remedy="it is made again by itself, unless the client is closed",
        )
        self._error = why
        if self._watch is not None:
            self._watch.cancel()
        self._writable.set()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(why)
        self._answers.clear()
        self._steps.put_nowait(why)
        if not self.closed.done():
            self.closed.set_result(None)
        self._lost(self, why)

    def _frame(self, kind: int, handle: int, payload: bytes) -> None:
        if kind == kinds.DELIVER_PACKED:
            from penstock.protocols.native.codec.packing import unpack

            kind, payload = kinds.DELIVER, unpack(payload, _DELIVERY_MAX)
        match kind:
            case (
                kinds.DELIVER
                | kinds.DELIVER_STORED
                | kinds.CONFIRM
                | kinds.REFUSED
                | kinds.PULLED
                | kinds.EVENT
                | kinds.CHECK
            ):
                receiver = self._receivers.get(handle)
                if receiver is not None:
                    try:
                        receiver.frame(kind, payload)
                    except ValueError as damage:
                        if kind != kinds.DELIVER_STORED:
                            raise
                        self._drop_damaged(damage)
            case kinds.RESPONSE:
                answer = self._answers.pop(handle, None)
                if answer is not None and not answer.done():
                    answer.set_result(json.loads(payload))
            case kinds.ERROR:
                error = from_wire(json.loads(payload))
                answer = self._answers.pop(handle, None)
                if answer is not None:
                    if not answer.done():
                        answer.set_exception(error)
                elif handle == 0:
                    self._error = error
                    self._steps.put_nowait(error)
                    self.abort()
            case kinds.PING:
                self.send(kinds.PONG, handle, b"")
            case kinds.WELCOME | kinds.READY:
                self._steps.put_nowait(json.loads(payload))

    def _drop_damaged(self, error: ValueError) -> None:
        """The gateway does not look at batches that it hands on as they are stored: damage is found here.

        Message by message it looks, and passes over what is damaged.
        """
        self.damaged = True
        self._error = ConnectionLost(
            f"a delivery cannot be read: {error}",
            remedy="it is asked for again, without stored batches",
        )
        self.abort()

    def _look(self, every_s: float) -> None:
        """A peer that is gone without a word is found: it says nothing, not even to a PING.

        Looks are counted, not seconds: a process that was held up reads before it looks again.
        """
        if self._heard:
            self._heard, self._missed = False, 0
        else:
            self._missed += 1
            if self._missed == _PING_AT:
                self.send(kinds.PING, 0, b"")
            elif self._missed == _GONE_AT:
                self._error = ConnectionLost(
                    f"the gateway said nothing for {every_s * _GONE_AT:.0f} s, not even to a PING",
                    remedy="it is connected to again by itself, unless the client is closed",
                )
                self.abort()
                return
        self._watch = self._loop.call_later(every_s, self._look, every_s)

    # Writing

    def write(self, frame: bytes) -> None:
        """Send a whole frame, with the others of this turn of the loop."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame)

    @property
    def frame_max(self) -> int:
        """The largest frame that the gateway takes, in bytes."""
        return int(self.welcome.get("max_frame_bytes", 2**31))

    def send(self, kind: int, handle: int, payload: bytes) -> None:
        """Send a frame. Raises Refused: the gateway would drop the connection, for it is too large."""
        if len(payload) + 8 > self.frame_max:
            raise too_large(len(payload), self.frame_max)
        self.write(_HEAD.pack(len(payload) + 8, kind, 0, 0, handle) + payload)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(out) if len(out) > 1 else out[0])

    async def drain(self) -> None:
        """Wait until the socket takes more. Raises ConnectionLost."""
        await self._writable.wait()
        if self._error is not None:
            raise self._error

    # Requests

    @property
    def alive(self) -> bool:
        """Whether it can be used."""
        return self._error is None

    def route(self, handle: int, receiver: Receiver | None) -> None:
        """Frames for the handle go to `receiver`; None: to nobody."""
        if receiver is None:
            self._receivers.pop(handle, None)
        else:
            self._receivers[handle] = receiver

    def number(self, answer: asyncio.Future[dict[str, Any]]) -> int:
        """The number of a new request, whose answer goes to `answer`."""
        self._next_request = self._next_request % (2**32 - 1) + 1
        self._answers[self._next_request] = answer
        return self._next_request

    async def request(self, do: str, **fields: Any) -> dict[str, Any]:
        """Ask, and wait for the answer.

        Raises:
            ClientError: the gateway refuses, or the connection is lost.

        """
        if self._error is not None:
            raise self._error
        # A caller that gives up leaves the answer to `drop`.
        return await asyncio.shield(self._ask(do, fields))

    def _ask(self, do: str, fields: dict[str, Any]) -> asyncio.Future[dict[str, Any]]:
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        answer.add_done_callback(_seen)
        wanted = {name: value for name, value in fields.items() if value is not None}
        self.send(kinds.REQUEST, self.number(answer), json.dumps({"do": do, **wanted}).encode())
        if "handle" in wanted:
            self._asked[wanted["handle"]] = answer
        return answer

    def drop(self, handle: int) -> None:
        """Close a handle whose opening was given up, once the gateway has opened it; waits for nothing."""
        self.route(handle, None)
        asked = self._asked.pop(handle, None)
        if asked is not None and not asked.done():
            asked.add_done_callback(lambda _: self.drop(handle))
        elif self.alive:
            self._ask("close", {"handle": handle})
            del self._asked[handle]

    def forget(self, request: int) -> None:
        """Nobody waits for the answer any more, or it came in another frame."""
        self._answers.pop(request, None)

    async def release(self, handle: int) -> None:
        """Close a handle; with the connection it is gone, too. Raises ClientError."""
        try:
            await self.request("close", handle=handle)
        except ConnectionLost:
            pass
        finally:
            self._asked.pop(handle, None)

    # Opening and closing

    async def login(self, target: Target, certified: bool, compression: str | None, stored: bool) -> None:
        """Introduce ourselves. Raises LoginRefused, ConnectionLost, ClientError: no such compression."""
        from penstock import __version__

        if compression is not None:
            _check_here(compression)
        wanted = [kinds.ROUTED, *([kinds.STORED] if stored else [])]
        capabilities = [*kinds.CAPABILITIES, *wanted, *([compression] if compression else [])]
        hello = {"versions": [1], "client": f"penstock-python/{__version__}", "capabilities": capabilities}
        login: dict[str, Any] = {"mechanism": "EXTERNAL", "vhost": target.vhost}
        if not certified:
            login = {
                "mechanism": "PLAIN",
                "user": target.user,
                "password": target.password,
                "vhost": target.vhost,
            }
        self.write(kinds.PREFACE)
        self.send(kinds.HELLO, 0, json.dumps(hello).encode())
        self.send(kinds.LOGIN, 0, json.dumps(login).encode())
        for _ in range(2):
            step = await self._steps.get()
            if isinstance(step, ClientError):
                raise step
            if "version" in step:
                self.welcome = step
            else:
                self.user = str(step.get("user", ""))
        if compression is not None and compression not in self.welcome["capabilities"]:
            raise ClientError(
                f"the gateway does not compress with {compression}",
                remedy="connect without compression, or to a newer gateway",
            )
        beat_s = float(self.welcome.get("heartbeat_s", 0))
        if beat_s > 0:
            self._look(beat_s / 2)
        self.packs = compression or ""
        self.stores = stored and not compression

    def abort(self) -> None:
        """Drop it."""
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Send what is to be sent, and close."""
        if self._out:
            self._flush()
        if self._transport is not None:
            self._transport.close()
            try:
                await asyncio.shield(self.closed)
            except asyncio.CancelledError:
                self.abort()
                raise


def _is_gateway(first: bytes | bytearray) -> bool:
    """Whether a gateway's WELCOME, or its ERROR, may begin so; both are smaller than 64 KiB."""
    return not any(first[:2]) and (len(first) < 5 or first[4] in (kinds.WELCOME, kinds.ERROR))


def _seen(answer: asyncio.Future[dict[str, Any]]) -> None:
    """Its exception is ignored: whoever waited for it has given up, or is told."""
    if not answer.cancelled():
        answer.exception()


def _check_here(compression: str) -> None:
    """Raises ClientError: it cannot be done in this process."""
    from penstock.protocols.native.codec.packing import available

    if compression not in available():
        raise ClientError(
            f"there is no compression {compression!r} here: there are {', '.join(available())}",
            remedy="install penstock[lz4] for LZ4, or connect without compression",
        )


def _remedy(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OF_ANOTHER_HOST:
            return "connect by a name that its certificate has, or give it one for this name"
        if error.verify_code == _EXPIRED:
            return "renew the gateway's certificate (tls.cert_file), or set the clock of this machine"
        return "if it is the right one, give its authority: tls=ssl.create_default_context(cafile=...)"
    if isinstance(error, ssl.SSLError):
        return "is this the address of native.tls_listen? Without TLS write penstock://"
    if isinstance(error, socket.gaierror):
        return "correct the host, or the names that this machine knows"
    return "is it running, with native.listen set to this address?"


async def open_link(
    target: Target,
    tls: ssl.SSLContext | None,
    certified: bool,
    compression: str | None,
    stored: bool,
    timeout_s: float,
    lost: Callable[[Link, ClientError], None],
) -> Link:
    """A connection that is logged in; `stored`: batches may come as they are stored.

    Raises:
        ConnectionLost: nobody is there, or not in time, or something else is.
        LoginRefused: the user may not come in.

    """
    loop = asyncio.get_running_loop()
    context = (tls or ssl.create_default_context()) if target.tls else None
    link: Link | None = None
    ready = False
    try:
        async with asyncio.timeout(timeout_s):
            _, link = await loop.create_connection(lambda: Link(lost), target.host, target.port, ssl=context)
            await link.login(target, certified, compression, stored)
            ready = True
            return link
    except ConnectionLost as error:
        if link is None or link.welcome:
            raise
        how = f"begins with {link.stranger!r}" if link.stranger else "closed the connection"
        nobody = (
            "" if link.stranger else " If it is, it lets nobody in now: it stops, or has too many connections"
        )
        raise ConnectionLost(
            f"{target.host}:{target.port} {how} and did not say that it is a gateway",
            remedy=f"is this the address of native.listen? TLS, AMQP, MQTT and HTTP have others.{nobody}",
        ) from error
    except (OSError, TimeoutError) as error:
        raise ConnectionLost(
            f"no gateway answers at {target.host}:{target.port}: {str(error) or 'it took too long'}",
            remedy=_remedy(error),
        ) from error
    except ValueError as error:
        # Of names, before anybody is asked: a label that is too long, a NUL.
        raise ClientError(
            f"{target.host[:100]!r} cannot be connected to: {error}", remedy="correct the address"
        ) from error
    finally:
        if link is not None and not ready:
            link.abort()
