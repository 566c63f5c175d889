"""The socket options of listeners, and so of the connections that they accept."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from penstock.protocols.listening.tcp import do_not_pace
from tests.support.limits import LIMIT_S


def control(one: socket.socket) -> str:
    return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


@pytest.mark.parametrize("name", ["reno", "bbr"])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_only_what_comes_over_loopback_is_not_paced(host: str, name: str) -> None:
    with closing(socket.create_server((host, 0))) as listening:
        try:
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError as error:
            pytest.skip(f"this kernel has no {name}: {error}")
        do_not_pace(listening)
        with closing(socket.create_connection(("127.0.0.1", listening.getsockname()[1]), timeout=LIMIT_S)):
            accepted, _ = listening.accept()
            with closing(accepted):
                assert control(accepted) == ("reno" if host == "127.0.0.1" else name)
