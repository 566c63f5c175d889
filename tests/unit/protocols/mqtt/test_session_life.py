"""The compiled life of a session: it raises where a wrong call would end the process."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.protocols.mqtt.codec._connect import Connect
from penstock.protocols.mqtt.session._connecting import vhost_of
from penstock.protocols.mqtt.session._replies import Replies
from tests.support.mqtt import Gateway, Peer

_NONE: Any = None


def test_nothing_is_sent_behind_a_reply_that_ends_the_connection(gateway: Gateway) -> None:
    peer = Peer(gateway, 4)
    replies = Replies(peer, gateway.log)
    later = gateway.log.synced_lsn + 1
    replies.send(b"1", later, replies.clear)
    replies.send(b"2", later)
    assert peer.out.size == 0
    gateway.connect("other", clean=False)
    gateway.settle()
    assert gateway.log.synced_lsn >= later
    replies.release()
    assert peer.out.take() == b"1"


@pytest.mark.parametrize("size", [-1, 5])
def test_bytes_that_are_not_there_are_not_read(gateway: Gateway, size: int) -> None:
    peer = gateway.connect("c")
    with pytest.raises(ValueError, match="not inside"):
        peer.session.receive(bytearray(b"\xc0\0"), size, gateway.loop.time())


def test_a_call_without_its_object_raises(gateway: Gateway) -> None:
    clients, peer = gateway.clients, Peer(gateway, 4)
    replies = Replies(peer, gateway.log)
    replies.send(b"")
    with pytest.raises(TypeError):
        replies.send(_NONE)
    assert peer.out.size == 0
    for call in (
        lambda: vhost_of(_NONE),
        lambda: clients.end(_NONE),
        lambda: clients.connected(_NONE, gateway.guest, 0),
        lambda: clients.disconnected(_NONE, None),
        lambda: clients.create(_NONE, "c", gateway.guest, 0),
    ):
        with pytest.raises(AttributeError):
            call()


def test_a_login_of_nobody_raises(gateway: Gateway) -> None:
    peer = Peer(gateway, 4)
    peer.session._connect = Connect(4, "c", True, 0)
    peer.session.state = type(peer.session.state).LOGIN
    with pytest.raises(AttributeError):
        peer.session.logged_in(_NONE)
