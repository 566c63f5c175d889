"""Mistakes below the level of methods: wrong headers, limits and frames, on a bare socket."""

from __future__ import annotations

import struct
from collections.abc import Callable

from pamqp import commands

from tests.support.amqp_client import HEADER, Closed, Connection

RAW_MISTAKES: dict[str, Callable[[Connection], None]] = {}
"""By golden name: what is sent on a connection that is at `stage(name)` of the handshake."""


def _bytes(name: str, data: bytes) -> None:
    def make(c: Connection) -> None:
        c.send_raw(data)

    RAW_MISTAKES[name] = make


def _frame(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def _tune(name: str, channel_max: int, frame_max: int) -> None:
    def make(c: Connection) -> None:
        c.send(0, commands.Connection.TuneOk(channel_max, frame_max, 0))
        c.send(0, commands.Connection.Open("/"))

    RAW_MISTAKES[name] = make


PUBLISH = struct.pack(">HHH", 60, 40, 0) + b"\0\0\0"

_bytes("raw: HTTP GET", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
_bytes("raw: bad header XMQP", b"XMQP\x00\x00\x09\x01")
_bytes("raw: header AMQP 0-8", b"AMQP\x01\x01\x08\x00")
_bytes("raw: header AMQP 0-9", b"AMQP\x01\x01\x00\x09")
_bytes("raw: header AMQP 1.0 (SASL)", b"AMQP\x03\x01\x00\x00")
_bytes("raw: header AMQP 1.0 (plain)", b"AMQP\x00\x01\x00\x00")
_bytes("raw: header AMQP 0-10", b"AMQP\x01\x01\x00\x0a")
_tune("raw: frame_max below 4096", 0x7FF, 100)
_tune("raw: frame_max above server", 0x7FF, 200000)
_tune("raw: frame_max 0 (unlimited)", 0x7FF, 0)
_tune("raw: channel_max above server", 3000, 131072)
_bytes("raw: channel number above channel_max", _frame(1, 11, struct.pack(">HHB", 20, 10, 0)))
_bytes(
    "raw: open more channels than channel_max",
    b"".join(_frame(1, channel, struct.pack(">HHB", 20, 10, 0)) for channel in (2, 3)),
)
_bytes("raw: bad frame end", _frame(1, 1, struct.pack(">HHB", 20, 10, 0), b"\0"))
_bytes("raw: unknown frame type 5", _frame(5, 1, b"abc"))
_bytes("raw: unknown method 20,99", _frame(1, 1, struct.pack(">HH", 20, 99)))
_bytes("raw: unknown class 99", _frame(1, 1, struct.pack(">HH", 99, 10)))
_bytes("raw: truncated method args", _frame(1, 1, struct.pack(">HHB", 50, 10, 0)))
_bytes("raw: body frame without header", _frame(3, 1, b"abc"))
_bytes("raw: method instead of header", _frame(1, 1, PUBLISH) + _frame(1, 1, PUBLISH))
_bytes(
    "raw: header with wrong class",
    _frame(1, 1, PUBLISH) + _frame(2, 1, struct.pack(">HHQH", 50, 0, 1, 0)),
)
_bytes("raw: frame longer than frame_max", _frame(3, 1, b"x" * 20000))
_bytes("raw: heartbeat on channel 1", _frame(8, 1, b""))


def open_for(name: str, port: int) -> Connection:
    """A connection at the stage where the mistake is made; channel 1 is open and limits are small where it
    is open.
    """
    if ("header" in name and "AMQP" in name) or name in ("raw: HTTP GET", "raw: bad header XMQP"):
        return Connection(port, until="socket")
    c = Connection(port, until="tune")
    if ("frame_max" in name and "longer" not in name) or name == "raw: channel_max above server":
        return c
    c.send(0, commands.Connection.TuneOk(2 if "channel_max" in name else 0x7FF, 8192, 0))
    c.send(0, commands.Connection.Open("/"))
    c.wait_for(commands.Connection.OpenOk)
    c.channel()
    return c


def make_raw(port: int, name: str, silent_s: float) -> dict[str, object]:
    """Make the mistake and say what came of it, in the form of the golden file.

    A connection on which nothing comes for `silent_s` seconds goes on.
    """
    c = open_for(name, port)
    RAW_MISTAKES[name](c)
    result: dict[str, object] = {"scope": "raw"}
    try:
        if (name.startswith("raw: header") and "wrong class" not in name) or "HTTP" in name or "XMQP" in name:
            first = c.read_exactly(8)
            if first == HEADER:
                result["header"] = first.hex()
                c.read()
            # Otherwise it is the begin of connection.start: the version is accepted.
            return result | {"ended": False}
        while True:
            c.socket.settimeout(silent_s)
            c.read()
    except TimeoutError:
        result["ended"] = False
    except Closed as closed:
        if closed.scope == "socket":
            result["ended"] = True
        else:
            result |= {"code": closed.code, "text": closed.text}
    finally:
        c.socket.close()
    return result
