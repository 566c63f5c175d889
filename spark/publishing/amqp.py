"""An AMQP 0-9-1 client that only publishes: frames that were encoded elsewhere, in transactions.

A transaction is on the gateway's disk when its commit-ok comes, as a whole or not at all. Some transactions
are under way at a time, so that nothing waits for a disk between two of them; the gateway takes them in
order, and after a refusal none of the later ones. When the connection is lost, or the gateway stops, what is
under way is sent again over another one: the messages are numbered, so the gateway drops what it has. One
connection at a time, one thread, channel 1.

Source: AMQP 0-9-1 sections 2.2.4, 4.2, classes connection, channel, tx; RabbitMQ's URI specification.
"""

from __future__ import annotations

import math
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from pamqp import commands, frame, header, heartbeat
from pamqp.exceptions import PAMQPException

from penstock.spark.credentials import with_password, without_password
from penstock.spark.errors import SparkError, SparkOptionError
from penstock.spark.retry import RetryWindow

__all__ = ["Publisher", "check_url"]

UNDER_WAY_MAX: Final = 16
"""Transactions that are not confirmed."""
_CONNECT_S: Final = 60.0
_CHANNEL: Final = 1
_FRAME_TYPES: Final = frozenset(b"\x01\x02\x03\x08")
_HEARTBEAT: Final = frame.marshal(heartbeat.Heartbeat(), 0)
_COMMIT: Final = frame.marshal(commands.Tx.Commit(), _CHANNEL)
_TLS_FILES: Final = ("cacertfile", "certfile", "keyfile")
_REMEDY: Final = "see that the gateway runs there; what is repeated then is not sent twice"
_REMEDIES: Final = {
    403: "give the user this permission, or publish as another one",
    404: "declare the exchange first, or say another one",
    530: "correct the vhost of the option 'url', or give the user permissions in it",
}
"""By reply code."""
_STOPS: Final = 320
"""The reply code of a gateway that is stopped."""


class GatewayGone(SparkError):
    """There is no connection, or none any more. A new one may do."""


def check_url(url: str) -> None:
    """Raises SparkOptionError: it is no AMQP URL that can be used."""
    parts = urlsplit(url)
    try:
        fine = parts.scheme in ("amqp", "amqps") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise SparkOptionError("url", without_password(url), "give amqp://USER:PASSWORD@HOST:PORT/VHOST")
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _TLS_FILES or parts.scheme == "amqp":
            raise SparkOptionError(
                "url", name, f"amqps:// knows {', '.join(_TLS_FILES)}, and amqp:// nothing"
            )


def _tls(url: str) -> ssl.SSLContext:
    """As the files that the URL names say. Raises SparkError."""
    given = dict(parse_qsl(urlsplit(url).query))
    try:
        context = ssl.create_default_context(cafile=given.get("cacertfile"))
        if "certfile" in given:
            context.load_cert_chain(given["certfile"], given.get("keyfile"))
    except OSError as error:
        raise SparkError(
            f"the files of TLS cannot be used: {error}",
            remedy=f"name PEM files that Spark's processes may read: {', '.join(_TLS_FILES)}",
        ) from error
    return context


def _refusal(told: commands.Channel.Close | commands.Connection.Close) -> SparkError:
    code, text = told.reply_code or 0, told.reply_text or ""
    remedy = _REMEDIES.get(code, "")
    if "Login" in text:
        remedy = "correct the user and the password of the option 'url'"
    return SparkError(f"the gateway refused it: {code} {text}", remedy=remedy)


class Publisher:
    """A connection to a gateway, made again when it is lost, as a context that ends it."""

    def __init__(self, url: str) -> None:
        """Connect and log in. Raises SparkError: nobody answers, or the login or vhost is refused."""
        check_url(url)
        self._url = url
        parts = urlsplit(url)
        self._tls = _tls(url) if parts.scheme == "amqps" else None
        self._address = (parts.hostname or "", parts.port or (5671 if self._tls else 5672))
        self._socket: socket.socket | None = None
        self._under_way: deque[bytes] = deque()
        """Messages that were not confirmed, oldest first."""
        self._written = 0
        """How many of them this connection has had."""
        self.frame_max = 0
        """The largest frame, in bytes."""
        self._steadily(lambda: None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hang_up()

    def transaction(self, frames: bytes) -> None:
        """Publish these as one transaction; waits while too many are under way.

        Raises SparkError: the gateway refused one before it, or is gone.
        """
        self._under_way.append(frames)
        self._steadily(lambda: self._until_under_way(UNDER_WAY_MAX - 1))

    def pause(self, seconds: float) -> None:
        """Let time pass, with heartbeats. Raises SparkError."""
        until = time.monotonic() + seconds

        def wait() -> None:
            while (left := until - time.monotonic()) > 0:
                self._wait(left)

        self._steadily(wait)

    def finish(self) -> None:
        """Wait until all is kept, and end the connection. Raises SparkError."""
        self._steadily(lambda: self._until_under_way(0))
        try:
            self._say(commands.Connection.Close(200, "done", 0, 0), 0)
            self._answer(commands.Connection.CloseOk)
        except GatewayGone:
            pass  # it has all

    def _steadily(self, work: Callable[[], None]) -> None:
        """Do it, over connections that are lost."""
        window = RetryWindow()
        while True:
            try:
                if self._socket is None:
                    self._connect()
                work()
            except GatewayGone as error:
                self._hang_up()
                window.wait(error)
            except BaseException:
                self._hang_up()
                raise
            else:
                return

    def _until_under_way(self, most: int) -> None:
        while self._written < len(self._under_way):
            self._write(self._under_way[self._written] + _COMMIT)
            self._written += 1
        while len(self._under_way) > most:
            if self._answers:
                raise SparkError(f"the gateway said {self._answers[0].name}, and nothing was asked")
            self._wait(None)

    # The connection

    def _connect(self) -> None:
        self._in = bytearray()
        self._answers: list[Any] = []
        self._written = self._heartbeat_s = 0
        self._silent_s = _CONNECT_S
        self._heard = time.monotonic()
        parts = urlsplit(with_password(self._url))
        try:
            self._socket = socket.create_connection(self._address, _CONNECT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                self._socket = self._tls.wrap_socket(self._socket, server_hostname=parts.hostname)
        except ssl.SSLCertVerificationError as error:
            remedy = "name the authority that signed it in the URL: ?cacertfile=PATH"
            what = f"the certificate of {self._place} is refused: {error}"
            raise SparkError(what, remedy=remedy) from error
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise self._lost(error) from error
        except ssl.SSLError as error:
            what = f"{self._place} does not speak TLS: {error.reason}"
            remedy = "give the address of the gateway's amqp.tls_listen, or write amqp:// for one without TLS"
            raise SparkError(what, remedy=remedy) from error
        except OSError as error:
            raise self._lost(error) from error
        self._socket.setblocking(False)
        user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
        self._open(user, password, unquote(parts.path[1:]) or "/")
        self._silent_s = 2 * self._heartbeat_s or math.inf

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # Frames

    def _open(self, user: str, password: str, vhost: str) -> None:
        self._write(header.ProtocolHeader(0, 9, 1).marshal())
        start = self._answer(commands.Connection.Start)
        if "PLAIN" not in start.mechanisms.split():
            raise SparkError(f"the gateway offers no PLAIN login, but {start.mechanisms}")
        known: dict[str, Any] = {
            "product": "penstock-spark",
            "capabilities": {"authentication_failure_close": True},
        }
        response = f"\0{user}\0{password}"
        self._say(commands.Connection.StartOk(known, "PLAIN", response, "en_US"), 0)
        tune = self._answer(commands.Connection.Tune)
        frame_max = tune.frame_max or 131072
        if frame_max < self.frame_max and self._under_way:
            raise SparkError(
                f"{self._place} takes frames of {frame_max} bytes only, and took {self.frame_max} before",
                remedy="run it again: what was sent is not sent twice",
            )
        self.frame_max = frame_max
        self._say(commands.Connection.TuneOk(tune.channel_max, self.frame_max, tune.heartbeat), 0)
        self._heartbeat_s = tune.heartbeat
        self._say(commands.Connection.Open(vhost), 0)
        self._answer(commands.Connection.OpenOk)
        self._say(commands.Channel.Open(), _CHANNEL)
        self._answer(commands.Channel.OpenOk)
        self._say(commands.Tx.Select(), _CHANNEL)
        self._answer(commands.Tx.SelectOk)

    def _say(self, method: Any, channel: int) -> None:
        self._write(frame.marshal(method, channel))

    def _answer(self, wanted: type) -> Any:
        while not self._answers:
            self._wait(None)
        found = self._answers.pop(0)
        if not isinstance(found, wanted):
            raise SparkError(f"the gateway said {found.name}, and {wanted.__name__} was to come")
        return found

    # Bytes

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._peer.send(view) :]
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                # The gateway reads no more for now; what it says meanwhile must be taken.
                self._poll(select.POLLIN | select.POLLOUT, None)
            except OSError as error:
                # Its answer before it closed the connection tells more.
                self._read()
                raise self._lost(error) from error

    def _wait(self, seconds: float | None) -> None:
        """Wait until something came, at most so long; the gateway is told meanwhile that we are there."""
        if not self._poll(select.POLLIN, seconds) and seconds is None:
            self._write(_HEARTBEAT)

    def _poll(self, events: int, seconds: float | None) -> bool:
        """Whether something happened within half a heartbeat, or `seconds` if they are less."""
        most = self._heartbeat_s / 2 or _CONNECT_S
        poller = select.poll()
        poller.register(self._peer, events)
        happened = poller.poll(1000 * (most if seconds is None else min(most, seconds)))
        if any(mask & ~select.POLLOUT for _, mask in happened):
            self._read()
        if time.monotonic() - self._heard > self._silent_s:
            raise self._lost(TimeoutError(f"it was silent for {self._silent_s:.0f} s"))
        return bool(happened)

    def _read(self) -> None:
        try:
            while True:
                data = self._peer.recv(65536)
                if not data:
                    if self._answers:  # the last of them, perhaps
                        return
                    raise self._lost(ConnectionResetError("it ended the connection"))
                self._heard = time.monotonic()
                self._in += data
                self._take()
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            raise self._lost(error) from error

    def _take(self) -> None:
        """The frames that are whole."""
        while len(self._in) >= 8:
            if self._in[0] not in _FRAME_TYPES:
                raise self._foreign()
            size = 8 + int.from_bytes(self._in[3:7], "big")
            if len(self._in) < size:
                return
            try:
                _, _, found = frame.unmarshal(bytes(self._in[:size]))
            except PAMQPException as error:
                raise self._foreign() from error
            del self._in[:size]
            if isinstance(found, commands.Tx.CommitOk):
                self._under_way.popleft()
                self._written -= 1
            elif isinstance(found, commands.Connection.Close) and found.reply_code == _STOPS:
                raise self._lost(ConnectionResetError(f"{found.reply_code} {found.reply_text}"))
            elif isinstance(found, commands.Channel.Close | commands.Connection.Close):
                raise _refusal(found)
            elif not isinstance(found, heartbeat.Heartbeat):
                self._answers.append(found)

    @property
    def _peer(self) -> socket.socket:
        assert self._socket is not None
        return self._socket

    @property
    def _place(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    def _foreign(self) -> SparkError:
        return SparkError(
            f"{self._place} does not speak AMQP 0-9-1",
            remedy="give the address of the gateway's amqp.listen, amqps:// for that of TLS",
        )

    def _lost(self, error: Exception) -> GatewayGone:
        return GatewayGone(
            f"publishing to {self._place} failed: {str(error) or type(error).__name__}", remedy=_REMEDY
        )
