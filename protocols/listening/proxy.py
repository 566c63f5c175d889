"""The PROXY protocol, versions 1 and 2: a trusted proxy says first from where its client comes.

    v1   "PROXY TCP4 192.0.2.7 198.51.100.1 51000 8883\\r\\n", at most 107 bytes
    v2   \\r\\n\\r\\n\\0\\r\\nQUIT\\n, version and command, family, length (16 bits); addresses; extensions

The header is read from the plain socket before anything else is put on it, and not a byte more: TLS and the
protocol begin behind it. Everything in it besides addresses (extensions, such as the client's certificate) is
skipped.

Source: The PROXY protocol, versions 1 & 2, as HAProxy's documentation has it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Final

from penstock.lazy_dataclass import dataclass

__all__ = ["ProxyError", "Source", "parse_header", "read_header"]

_V1_MAX: Final = 107
_V2: Final = b"\r\n\r\n\0\r\nQUIT\n"
_V2_MAX: Final = 4096
"""Most bytes behind the first 16: addresses and extensions."""
_LENGTHS: Final = {0x11: 12, 0x21: 36}
"""Bytes of the addresses, by family: TCP over IPv4 and over IPv6."""


class ProxyError(Exception):
    """The first bytes are no PROXY header."""


@dataclass(frozen=True, slots=True)
class Source:
    """The client behind the proxy."""

    host: str
    """Numeric address; "" = the header does not say."""
    port: int
    is_proxy: bool = False
    """The proxy speaks for itself, as when it looks whether we are there."""


def parse_header(data: bytes) -> tuple[Source, int] | None:
    """The header at the beginning of `data` and its size; None = more is needed.

    Raises:
        ProxyError: it is none, or one that cannot be understood.

    """
    if _V2.startswith(data[:12]):
        return _parse_v2(data)
    if b"PROXY ".startswith(data[:6]):
        return _parse_v1(data)
    raise ProxyError("no PROXY header")


def _parse_v1(data: bytes) -> tuple[Source, int] | None:
    end = data.find(b"\r\n", 0, _V1_MAX)
    if end < 0:
        if len(data) >= _V1_MAX:
            raise ProxyError("a PROXY header of version 1 has at most 107 bytes")
        return None
    words = data[:end].decode("latin-1").split(" ")
    if words[1] == "UNKNOWN":
        return Source("", 0), end + 2
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
        raise ProxyError("a PROXY header of version 1 that is not understood")
    try:
        address = ipaddress.ip_address(words[2])
    except ValueError:
        raise ProxyError("no address in the PROXY header") from None
    port = words[4]
    if address.version != int(words[1][3]) or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ProxyError("no address in the PROXY header")
    return Source(str(address), int(port)), end + 2


def _parse_v2(data: bytes) -> tuple[Source, int] | None:
    if len(data) < 16:
        return None
    command, family, length = data[12], data[13], data[14] << 8 | data[15]
    if command not in (0x20, 0x21):
        raise ProxyError("a PROXY header of an unknown version or command")
    if length > _V2_MAX:
        raise ProxyError(f"a PROXY header of {length} bytes")
    if len(data) < 16 + length:
        return None
    if command == 0x20:
        return Source("", 0, is_proxy=True), 16 + length
    needed = _LENGTHS.get(family)
    if needed is None:
        return Source("", 0), 16 + length
    if length < needed:
        raise ProxyError("a PROXY header that is too short for its addresses")
    size = 4 if needed == 12 else 16
    host = str(ipaddress.ip_address(data[16 : 16 + size]))
    return Source(host, int.from_bytes(data[16 + 2 * size : 18 + 2 * size], "big")), 16 + length


async def read_header(accepted: socket.socket, timeout_s: float) -> Source:
    """Take the header off a non-blocking socket, and nothing behind it.

    Raises:
        ProxyError: what comes is none, or the peer closes.
        TimeoutError: it is not complete in time.
        OSError: the connection broke.

    """
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(accepted.fileno(), readable.set)
    try:
        async with asyncio.timeout(timeout_s):
            data = b""
            while True:
                await readable.wait()
                readable.clear()
                try:
                    new = accepted.recv(16 + _V2_MAX, socket.MSG_PEEK)
                except (BlockingIOError, InterruptedError):
                    continue
                if not new:
                    raise ProxyError("the proxy closed before its header")
                found = parse_header(data + new)
                # The bytes of the header are taken, so that the socket is readable only when more has come.
                accepted.recv(len(new) if found is None else found[1] - len(data))
                if found is not None:
                    return found[0]
                data += new
    finally:
        loop.remove_reader(accepted.fileno())
