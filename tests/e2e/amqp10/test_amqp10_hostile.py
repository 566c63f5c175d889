"""Bytes that are no AMQP 1.0, or not now: the connection ends with a reason, and others are served."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from penstock.protocols.amqp10.codec.frames import HEADER, SASL, SASL_HEADER, encode_frame, read_frame
from penstock.protocols.amqp10.codec.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Flow,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Target,
    Transfer,
)
from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S

LOGIN = SASL_HEADER + encode_frame(0, SaslInit("PLAIN", b"\0guest\0guest"), kind=SASL) + HEADER
OPEN = LOGIN + encode_frame(0, Open("c"))
BEGIN = OPEN + encode_frame(0, Begin(None, 0, 100, 100))
_SENDER = Attach("l", 0, False, target=Target(None), initial_delivery_count=0)


def talk(port: int, data: bytes) -> list[Any]:
    """Send this and nothing more; the performatives that come until the gateway closes, headers left out."""
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as peer:
        peer.sendall(data)
        came = b""
        found: list[Any] = []
        while True:
            part = peer.recv(65536)
            came += part
            while came:
                if came[:4] == b"AMQP":
                    if len(came) < 8:
                        break
                    came = came[8:]
                    continue
                frame = read_frame(came, 0, len(came), 1 << 20)
                if frame is None:
                    break
                came = came[frame[0] :]
                found.append(frame[3])
                if isinstance(frame[3], Close) and frame[3].error is not None:
                    peer.sendall(encode_frame(0, Close()))
            if not part:
                assert not came
                return found


def condition(found: list[Any]) -> str:
    """Why the gateway closed; an open comes before."""
    assert any(isinstance(one, Open) for one in found)
    assert isinstance(found[-1], Close)
    assert found[-1].error is not None
    return found[-1].error.condition


def test_the_login_is_in_the_order_of_the_standard(amqp_port: int) -> None:
    found = talk(amqp_port, OPEN + encode_frame(0, Close()))
    assert [type(one) for one in found] == [SaslMechanisms, SaslOutcome, Open, Close]
    assert "PLAIN" in found[0].sasl_server_mechanisms
    assert found[1].code == 0
    assert found[3].error is None


@pytest.mark.parametrize(
    "init",
    [SaslInit("PLAIN", b"\0guest\0wrong"), SaslInit("PLAIN"), SaslInit("NO-SUCH"), SaslInit("EXTERNAL")],
)
def test_a_login_that_fails_ends_with_the_outcome_auth(amqp_port: int, init: SaslInit) -> None:
    found = talk(amqp_port, SASL_HEADER + encode_frame(0, init, kind=SASL))
    assert found[-1] == SaslOutcome(1)


def test_without_sasl_nobody_comes_in(amqp_port: int) -> None:
    assert talk(amqp_port, HEADER + encode_frame(0, Open("c"))) == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (LOGIN + encode_frame(0, Begin(None, 0, 1, 1)), "amqp:illegal-state"),
        (LOGIN + encode_frame(0, Open("c", "vhost:no-such-vhost")), "amqp:not-found"),
        (OPEN + struct.pack(">IBBH", 1 << 30, 2, 0, 0), "amqp:connection:framing-error"),
        (OPEN + struct.pack(">IBBH", 12, 2, 0, 0) + b"\x00\x53\x99\x45", "amqp:decode-error"),
        (OPEN + encode_frame(7, Flow(0, 1, 0, 1)), "amqp:illegal-state"),
        (BEGIN + encode_frame(0, Attach("l", 4096, False)), "amqp:connection:framing-error"),
        (OPEN + encode_frame(0, SaslInit("PLAIN"), kind=SASL), "amqp:connection:framing-error"),
    ],
)
def test_a_mistake_ends_the_connection_with_its_condition(amqp_port: int, data: bytes, said: str) -> None:
    assert condition(talk(amqp_port, data)) == said


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        ([Transfer(5, 0, b"t", 0)], "amqp:session:unattached-handle"),
        ([Detach(5)], "amqp:session:unattached-handle"),
        ([_SENDER, _SENDER], "amqp:session:handle-in-use"),
    ],
)
def test_a_mistake_in_a_session_ends_the_session_only(amqp_port: int, frames: list[Any], said: str) -> None:
    data = BEGIN + b"".join(encode_frame(0, frame) for frame in frames)
    found = talk(amqp_port, data + encode_frame(0, End()) + encode_frame(0, Close()))
    ends = [one for one in found if isinstance(one, End)]
    assert len(ends) == 1
    assert ends[0].error is not None
    assert ends[0].error.condition == said
    assert found[-1] == Close()


def transfers(handle: int, number: int, parts: list[bytes], *, more: bool) -> bytes:
    """A message in parts; `more`: the last one does not come."""
    frames = b""
    for at, part in enumerate(parts):
        first = (number, b"t", 0) if at == 0 else (None, None, None)
        head = Transfer(handle, *first, False, more or at < len(parts) - 1)
        frames += encode_frame(0, head, part)
    return frames


def sender(handle: int) -> bytes:
    return encode_frame(0, Attach(f"l{handle}", handle, False, target=Target(None), initial_delivery_count=0))


def detached(found: list[Any]) -> list[str]:
    return [one.error.condition for one in found if isinstance(one, Detach) and one.error is not None]


def test_incomplete_messages_of_all_links_together_are_bounded(tmp_path: Path) -> None:
    settings = {"amqp.max_message_bytes": "10000"}
    with Gateway(tmp_path / "data", settings=settings) as gateway:
        half = [b"x" * 3000]
        bye = encode_frame(0, Close())
        begun = BEGIN + sender(0) + sender(1) + sender(2)
        three = b"".join(transfers(n, n, half, more=True) for n in range(3))
        assert detached(talk(gateway.amqp_port, begun + three + bye)) == []
        # A fourth part is too much, and only its link ends; what the others gathered is not lost.
        found = talk(gateway.amqp_port, begun + three + transfers(1, 1, half, more=True) + bye)
        assert detached(found) == ["amqp:resource-limit-exceeded"]
        # A link frees its buffer when it ends, and when the message is complete or aborted.
        over = encode_frame(0, Detach(0, True)) + transfers(1, 1, half, more=True)
        assert detached(talk(gateway.amqp_port, begun + three + over + bye)) == []
        whole = b"".join(transfers(n % 3, n, [b"y" * 3000, b"z" * 3000], more=False) for n in range(9))
        assert detached(talk(gateway.amqp_port, begun + whole + bye)) == []
        large = transfers(0, 0, half * 4, more=True)
        assert detached(talk(gateway.amqp_port, begun + large + bye)) == ["amqp:link:message-size-exceeded"]
