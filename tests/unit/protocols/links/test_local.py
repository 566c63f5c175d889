"""The pair of sockets between a link and the gateway that it belongs to."""

from __future__ import annotations

import socket

from penstock.protocols.links.local import _pair


def test_a_turn_moves_more_than_the_systems_default() -> None:
    plain = socket.socketpair()
    pair = _pair()
    for one in (*plain, *pair):
        one.setblocking(False)
    data = bytes(1 << 20)
    assert pair[0].send(data) > 1.5 * plain[0].send(data)
    for one in (*plain, *pair):
        one.close()
