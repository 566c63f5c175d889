"""Clients that come and go, driven by the compiled loop in logins.c: the scripts of each protocol's login."""

from __future__ import annotations

import ctypes
import itertools
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench import load_amqp, load_mqtt
from bench.connections.compiled import library

__all__ = ["AMQP_LOGIN", "Came", "Script", "come_and_go", "mqtt_login"]

_PROTOCOLS: Final = {"mqtt": 1, "amqp": 2}
_DIGITS: Final = b"00000000"
_KEEP_ALIVE_S: Final = 3600
"""Clients that stay say nothing more."""
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Script:
    """The bytes of each step and the answer it waits for (MQTT: packet type; AMQP: class << 16 | method)."""

    protocol: str
    steps: Sequence[tuple[bytes, int]]
    goodbye: bytes = b""
    own_number: bool = False
    """Whether the first step has `_DIGITS`, which differ for each client."""


@dataclass(frozen=True, slots=True)
class Came:
    """The result of one run."""

    seconds: float
    """Until the last one had its last answer."""
    answered: int
    refused: int
    slowest_s: float
    """Of one client, from its connect to its last answer."""

    @property
    def per_s(self) -> float:
        """Clients."""
        return self.answered / self.seconds


class _Step(ctypes.Structure):
    _fields_ = [  # type: ignore[mutable-override]
        ("bytes", ctypes.c_char_p),
        ("size", ctypes.c_uint32),
        ("wanted", ctypes.c_uint32),
    ]


class _Plan(ctypes.Structure):
    _fields_ = [  # type: ignore[mutable-override]
        *(
            (name, ctypes.c_int)
            for name in ("protocol", "port", "count", "window", "keep", "overlap", "tls", "steps")
        ),
        ("script", ctypes.POINTER(_Step)),
        ("number_at", ctypes.c_int),
        ("goodbye", ctypes.c_char_p),
        ("goodbye_size", ctypes.c_uint32),
        ("patience_s", ctypes.c_double),
    ]


class _Figures(ctypes.Structure):
    _fields_ = [  # type: ignore[mutable-override]
        (name, ctypes.c_uint64) for name in ("elapsed_ns", "answered", "refused", "slowest_ns")
    ]


def mqtt_login(
    *,
    clean: bool = True,
    same: bool = False,
    leaves: bool = True,
    version: int = 4,
    user: str = "",
    password: str = "",
) -> Script:
    """CONNECT of MQTT 3.1.1 (4) or 5; DISCONNECT if it `leaves`. `same`: all have one client id. Without a
    `user` it gives no password.
    """
    name = f"churn-{os.getpid()}-{next(_numbers)}-".encode() + _DIGITS
    flags = (2 if clean else 0) | (0xC0 if user else 0)
    head = load_mqtt.utf8("MQTT") + bytes([version, flags]) + struct.pack(">H", _KEEP_ALIVE_S)
    head += b"\0" if version == 5 else b""
    credentials = load_mqtt.utf8(user) + load_mqtt.utf8(password) if user else b""
    connect = load_mqtt.packet(0x10, head + load_mqtt.utf8(name.decode()) + credentials)
    return Script("mqtt", [(connect, 0x20)], b"\xe0\0" if leaves else b"", own_number=not same)


def _amqp_login() -> Script:
    one = load_amqp.short_string("publisher_confirms") + b"t\x01"
    table = load_amqp.short_string("capabilities") + b"F" + struct.pack(">I", len(one)) + one
    response = b"\0guest\0guest"
    said = (
        struct.pack(">I", len(table))
        + table
        + load_amqp.short_string("PLAIN")
        + struct.pack(">I", len(response))
        + response
        + load_amqp.short_string("en_US")
    )
    tuned = load_amqp.method(0, 10, 31, struct.pack(">HIH", 2047, 131072, 60))
    opens = load_amqp.method(0, 10, 40, load_amqp.short_string("/") + b"\0\0")
    return Script(
        "amqp",
        [
            (b"AMQP\0\0\x09\x01", 10 << 16 | 10),
            (load_amqp.method(0, 10, 11, said), 10 << 16 | 30),
            (tuned + opens, 10 << 16 | 41),
            (load_amqp.method(1, 20, 10, b"\0"), 20 << 16 | 11),
        ],
    )


AMQP_LOGIN: Final = _amqp_login()
"""guest's, with a channel."""


def come_and_go(
    script: Script,
    port: int,
    count: int,
    *,
    window: int = 1,
    keep: bool = False,
    overlap: bool = False,
    tls: bool = False,
    patience_s: float = 120.0,
) -> Came:
    """`count` clients, `window` at a time, at 127.0.0.1:`port`; `keep`: all stay until the last has come.

    `overlap`: one at a time, and each leaves when the next one has its answer.
    """
    steps = (_Step * len(script.steps))(*[_Step(said, len(said), wanted) for said, wanted in script.steps])
    plan = _Plan(
        protocol=_PROTOCOLS[script.protocol],
        port=port,
        count=count,
        window=count if keep else window,
        keep=int(keep),
        overlap=int(overlap),
        tls=int(tls),
        steps=len(script.steps),
        script=steps,
        number_at=script.steps[0][0].index(_DIGITS) if script.own_number else -1,
        goodbye=script.goodbye,
        goodbye_size=len(script.goodbye),
        patience_s=patience_s,
    )
    figures = _Figures()
    library("logins").come_and_go(ctypes.byref(plan), ctypes.byref(figures))
    return Came(figures.elapsed_ns / 1e9, figures.answered, figures.refused, figures.slowest_ns / 1e9)
