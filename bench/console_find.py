"""One message of very many, found by the search of the console: `python -m bench.console --case find`.

A queue gets --messages of 200 bytes with a header and a message id; one of them, at three quarters, has a
header, an id and a text that no other has. It is found by each of these, and by the second it was published
in. A search goes on from its cursor on a new connection each time, so each is also stopped and continued. It
fails unless exactly that message is found and the progress rises up to 1.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bench.cpu import wait_until_idle
from bench.load_amqp import Client, frame, method, short_string
from bench.publish_latency import declare
from tests.support.brokers import Gateway

_SIZE = 200
_CHUNK = 10_000
_QUEUE = "haystack"
_NEEDLE = "needle"
Search = Callable[[int, dict[str, Any]], dict[str, Any]]
"""Sends a search to the port of the data plane."""


def find(folder: Path, settings: dict[str, str], messages: int, search: Search) -> None:
    """Publish, search and print."""
    with Gateway(folder / "find", settings=settings) as gateway:
        began = time.monotonic()
        at_needle = publish(gateway, messages)
        print(f"{messages:,} messages of {_SIZE} bytes published in {time.monotonic() - began:,.0f} s")
        port = gateway.ports["http"]
        found = _found(port, "its header", {"headers": {"kind": _NEEDLE}}, search)
        _found(port, "its id", {"message_id": f"{_NEEDLE}-{at_needle}"}, search)
        _found(port, "its text", {"body": {"contains": f"is {_NEEDLE}"}}, search)
        second = found["published_at"] // 1000 * 1000
        window = {"from": second, "to": second + 1000, "headers": {"kind": _NEEDLE}}
        _found(port, "its second and header", window, search)


def publish(gateway: Gateway, messages: int) -> int:
    """So many messages into a queue; the number of the one that is unlike the others."""
    declare(gateway.amqp_port, [_QUEUE])
    at_needle = 3 * messages // 4 // _CHUNK * _CHUNK
    usual = b"".join(_message(number, "usual", "nothing") for number in range(_CHUNK))
    with closing(Client(gateway.amqp_port)) as client:
        client.socket.settimeout(600)
        for sent in range(0, messages, _CHUNK):
            client.socket.sendall(usual)
            if sent == at_needle:
                client.socket.sendall(_message(sent, _NEEDLE, _NEEDLE))
    wait_until_idle(gateway.pid, 600)
    return at_needle


def _message(number: int, kind: str, said: str) -> bytes:
    publish = method(1, 60, 40, b"\0\0" + short_string("") + short_string(_QUEUE) + b"\0")
    table = short_string("kind") + b"S" + struct.pack(">I", len(kind)) + kind.encode()
    # Headers, delivery mode, message id.
    block = struct.pack(">HI", 0x3080, len(table)) + table + b"\2" + short_string(f"{kind}-{number}")
    body = f"this is {said} ".encode() + random.Random(number).randbytes(_SIZE // 2)
    body = body.ljust(_SIZE)
    return publish + frame(2, 1, struct.pack(">HHQ", 60, 0, len(body)) + block) + frame(3, 1, body)


def _found(port: int, by: str, asked: dict[str, Any], search: Search) -> dict[str, Any]:
    """The one message that is found."""
    began, progress, read, answers = time.monotonic(), 0.0, 0, 0
    found: list[dict[str, Any]] = []
    asked = {"queue": _QUEUE, **asked}
    while True:
        answer = search(port, asked)
        assert answer["progress"] >= progress, "the progress falls"
        progress, read, answers = answer["progress"], read + answer["scanned_bytes"], answers + 1
        found += answer["messages"]
        if "cursor" not in answer:
            break
        asked["cursor"] = answer["cursor"]
    took = time.monotonic() - began
    assert progress == 1 and len(found) == 1 and found[0]["headers"] == {"kind": _NEEDLE}, (progress, found)
    print(f"{f'found by {by}':44} {took:7.1f} s   {read / 1e6:,.0f} MB read, {answers:,} answers", flush=True)
    return found[0]


def path() -> str:
    """Where searches are sent."""
    return f"/v1/vhosts/{quote('/', '')}/log/search"
