"""The gateway's log from elsewhere: its files as bytes, and leases on what is still needed.

Blocking and made for tasks of Spark: one socket, requests one after the other or some ahead. Needs a user
with the tag administrator. docs/reference/native.md has the frames.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
from typing import Any, Final, Literal

from penstock.lazy_dataclass import dataclass
from penstock.protocols.native.codec import kinds
from penstock.sdk.connection.url import parse_url
from penstock.sdk.errors import ClientError, ConnectionLost, Refused, from_wire

__all__ = ["READ_MAX", "LogClient", "LogListing"]

READ_MAX: Final = 4 << 20
"""Bytes of one read."""

_HEAD: Final = struct.Struct(">IBBHI")
_TIMEOUT_S: Final = 60.0
_RECEIVE_BYTES: Final = 1 << 20
_FIRST: Final = (kinds.WELCOME, kinds.ERROR, kinds.PING)
"""The first words of a gateway,"""
_WELCOME_MAX: Final = 1 << 20
"""of so many bytes at most."""
_ELSEWHERE: Final = "is this the address of native.listen? AMQP, MQTT and HTTP have others"


@dataclass(frozen=True)
class LogListing:
    """The files there are."""

    manifest: bytes
    segments: list[tuple[int, int, int]]
    """Number, inode and size of each segment, ascending."""
    vhosts: dict[int, bytes]
    """Names by log partition."""


class LogClient:
    """One connection. Not for several threads."""

    def __init__(self, url: str) -> None:
        """Connect and log in to a URL as for `penstock.connect`.

        Raises:
            ClientError: it is no URL, nobody answers, or the login is refused.

        """
        self.url = url
        target = parse_url(url)
        self._address = f"{target.host}:{target.port}"
        try:
            self._socket = socket.create_connection((target.host, target.port), _TIMEOUT_S)
        except OSError as error:
            raise ConnectionLost(
                f"{self._address} cannot be reached: {error.strerror or error}",
                remedy="is it running, with native.listen set to this address?",
            ) from error
        self._next = 0
        self._answers: dict[int, tuple[int, bytes]] = {}
        self._unwanted: set[int] = set()
        self.lost = False
        """The connection is gone: make another client."""
        self._welcome = False
        """The peer has shown that it is a gateway."""
        self._in = bytearray()
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if target.tls:
                context = ssl.create_default_context()
                self._socket = context.wrap_socket(self._socket, server_hostname=target.host)
            hello = {"versions": [kinds.VERSION], "client": "penstock-log", "capabilities": ["log"]}
            login = {
                "mechanism": "PLAIN",
                "user": target.user,
                "password": target.password,
                "vhost": target.vhost,
            }
            self._write(kinds.PREFACE + _frame(kinds.HELLO, 0, hello) + _frame(kinds.LOGIN, 0, login))
            self._until(kinds.WELCOME)
            self._welcome = True
            self._until(kinds.READY)
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise ClientError(
                f"the certificate of {self._address} is refused: {error.verify_message}",
                remedy="add its CA to those of the system, or name it in $SSL_CERT_FILE",
            ) from error
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            self.close()
            raise self._lost(error) from error
        except ssl.SSLError as error:
            self.close()
            raise ClientError(
                f"{self._address} does not speak TLS: {error.reason}",
                remedy="is this the address of native.tls_listen? Without TLS write penstock://",
            ) from error
        except OSError as error:
            self.close()
            raise self._lost(error) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection; what was asked for is not answered any more."""
        self._socket.close()

    # Requests

    def listing(self) -> LogListing:
        """Which files there are. Raises ClientError, as all here."""
        said = self._answer(self._ask({"do": "log"}))
        return LogListing(
            bytes.fromhex(said["manifest"]),
            [(number, inode, size) for number, inode, size in said["segments"]],
            {int(number): name.encode("utf-8", "surrogateescape") for number, name in said["vhosts"].items()},
        )

    def ask(
        self,
        segment: int,
        inode: int,
        offset: int,
        size: int,
        file: Literal["segment", "index"] = "segment",
    ) -> int:
        """Ask for at most `size` (READ_MAX) bytes of a file as it was when it had that inode (0: whichever).

        Returns a number for `take` or `forget`; at most 16 may be open.
        """
        request = {"do": "log_read", "segment": segment, "inode": inode, "offset": offset, "bytes": size}
        return self._ask({**request, "file": file})

    def take(self, asked: int) -> bytes:
        """The bytes that were asked for, fewer at the end of the file.

        Raises:
            FileNotFoundError: the segment is gone.
            ClientError: the gateway refused it, or is gone.

        """
        kind, payload = self._wait(asked)
        if kind == kinds.ERROR:
            error = from_wire(json.loads(payload))
            if isinstance(error, Refused) and error.code == "not_found":
                raise FileNotFoundError(error.message)
            raise error
        return payload

    def forget(self, asked: int) -> None:
        """The bytes are not wanted any more."""
        if self._answers.pop(asked, None) is None:
            self._unwanted.add(asked)

    def acquire_lease(self, name: str, position: int, ttl_s: int) -> None:
        """Keep the log from `position` on for `ttl_s` seconds; the lease is listed under `name`."""
        self._answer(self._ask({"do": "hold", "name": name, "position": position, "ttl_s": ttl_s}))

    def release_lease(self, name: str) -> None:
        """End the lease."""
        self._answer(self._ask({"do": "release", "name": name}))

    def leases(self) -> list[dict[str, Any]]:
        """All leases: name, user, position, behind."""
        found: list[dict[str, Any]] = self._answer(self._ask({"do": "holds"}))["holds"]
        return found

    def _ask(self, request: dict[str, Any]) -> int:
        self._next = (self._next + 1) & 0xFFFFFFFF or 1
        self._write(_frame(kinds.REQUEST, self._next, request))
        return self._next

    def _answer(self, asked: int) -> dict[str, Any]:
        kind, payload = self._wait(asked)
        said: dict[str, Any] = json.loads(payload)
        if kind == kinds.ERROR:
            raise from_wire(said)
        return said

    # Frames

    def _write(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._lost(error) from error

    def _wait(self, asked: int) -> tuple[int, bytes]:
        while asked not in self._answers:
            kind, id, payload = self._read()
            if kind in (kinds.RESPONSE, kinds.LOG, kinds.ERROR) and id:
                if id in self._unwanted:
                    self._unwanted.discard(id)
                else:
                    self._answers[id] = (kind, payload)
        return self._answers.pop(asked)

    def _until(self, wanted: int) -> None:
        while self._read()[0] != wanted:
            pass

    def _read(self) -> tuple[int, int, bytes]:
        """The next frame that is no PING."""
        while True:
            size, kind, _, _, id = _HEAD.unpack(self._receive(_HEAD.size))
            if not self._welcome and (kind not in _FIRST or not 0 <= size - (_HEAD.size - 4) <= _WELCOME_MAX):
                self.close()
                raise ClientError(f"{self._address} does not speak the native protocol", remedy=_ELSEWHERE)
            payload = self._receive(size + 4 - _HEAD.size)
            if kind == kinds.PING:
                self._write(_HEAD.pack(_HEAD.size - 4, kinds.PONG, 0, 0, id))
            elif kind == kinds.ERROR and id == 0:
                self.lost = True
                self.close()
                raise from_wire(json.loads(payload))
            else:
                return kind, id, payload

    def _receive(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        at = min(len(self._in), size)
        view[:at] = self._in[:at]
        del self._in[:at]
        try:
            while at < size:
                if size - at >= _RECEIVE_BYTES:
                    got = self._socket.recv_into(view[at:])
                    at += got
                else:
                    more = self._socket.recv(_RECEIVE_BYTES)
                    got = len(more)
                    part = min(got, size - at)
                    view[at : at + part] = more[:part]
                    at += part
                    self._in += more[part:]
                if not got:
                    raise self._lost(None)
        except OSError as error:
            raise self._lost(error) from error
        view.release()
        return bytes(data)

    def _lost(self, error: OSError | None) -> ClientError:
        self.lost = True
        self.close()
        if error is None and not self._welcome:
            return ConnectionLost(
                f"{self._address} closed the connection and did not say that it is a gateway",
                remedy=f"{_ELSEWHERE}. If it is, it lets nobody in now: it stops, or has too many clients",
            )
        why = "" if error is None else f": {error.strerror or error}"
        return ConnectionLost(
            f"the connection to {self._address} was lost{why}", remedy="see that the gateway runs; try again"
        )


def _frame(kind: int, id: int, value: dict[str, Any]) -> bytes:
    payload = json.dumps(value).encode()
    return _HEAD.pack(_HEAD.size - 4 + len(payload), kind, 0, 0, id) + payload
