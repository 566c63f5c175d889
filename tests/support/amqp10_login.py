"""A socket that logs in by a mechanism of SASL, for those that few clients of AMQP 1.0 have."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.protocols.amqp10.codec.frames import HEADER, SASL, SASL_HEADER, encode_frame, read_frame
from penstock.protocols.amqp10.codec.performatives import (
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from tests.support.limits import LIMIT_S
from tests.support.scram import METHOD, ScramClient

__all__ = ["login", "scram_login"]


class _Reader:
    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._came = b""

    def header(self) -> bytes:
        while len(self._came) < 8:
            self._more()
        found, self._came = self._came[:8], self._came[8:]
        return found

    def frame(self) -> Any:
        while (frame := read_frame(self._came, 0, len(self._came), 1 << 20)) is None:
            self._more()
        self._came = self._came[frame[0] :]
        return frame[3]

    def _more(self) -> None:
        part = self._peer.recv(65536)
        if not part:
            raise EOFError("the gateway closed the connection")
        self._came += part


def _dialogue(
    peer: socket.socket,
    mechanism: str,
    first: bytes,
    answer: Callable[[bytes], bytes],
    hostname: str | None,
) -> Any:
    """An outcome that is a refusal, or the first performative of the connection."""
    reader = _Reader(peer)
    peer.sendall(SASL_HEADER)
    assert reader.header() == SASL_HEADER
    mechanisms = reader.frame()
    assert isinstance(mechanisms, SaslMechanisms)
    assert mechanism in mechanisms.sasl_server_mechanisms
    peer.sendall(encode_frame(0, SaslInit(mechanism, first), kind=SASL))
    while isinstance(said := reader.frame(), SaslChallenge):
        peer.sendall(encode_frame(0, SaslResponse(answer(said.challenge)), kind=SASL))
    assert isinstance(said, SaslOutcome)
    if said.code:
        return said
    if said.additional_data is not None:
        answer(said.additional_data)
    peer.sendall(HEADER + encode_frame(0, Open("login", hostname)))
    assert reader.header() == HEADER
    return reader.frame()


@contextmanager
def login(port: int, mechanism: str, responses: Sequence[bytes]) -> Iterator[tuple[list[bytes], Any]]:
    """The challenges that came, and the outcome if it is a refusal, else the open of the gateway."""
    challenges: list[bytes] = []

    def answer(challenge: bytes) -> bytes:
        challenges.append(challenge)
        return responses[len(challenges)]

    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as peer:
        first = _dialogue(peer, mechanism, responses[0], answer, None)
        yield challenges, first


@contextmanager
def scram_login(port: int, user: str, password: bytes, hostname: str | None = None) -> Iterator[Any]:
    """The outcome of a refusal, or the open of a gateway that proved that it knows the password."""
    client = ScramClient(user, password)
    said: list[bytes] = []

    def answer(challenge: bytes) -> bytes:
        said.append(challenge)
        return client.final(challenge) if len(said) == 1 else b""

    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as peer:
        first = _dialogue(peer, METHOD, client.first(), answer, hostname)
        if isinstance(first, Open):
            assert said[1:] == [client.signature]
        yield first
