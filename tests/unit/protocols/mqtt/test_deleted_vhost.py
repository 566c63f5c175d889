"""A vhost that is deleted takes its MQTT sessions with it, whether they are connected or not."""

from __future__ import annotations

from penstock.router.authorization.permissions import Permission
from tests.reference import mqtt_frames as f
from tests.support.mqtt import Gateway

EXPIRY = b"\x11\0\0\x10\0"


def test_its_sessions_are_gone_and_the_next_start_is_fine(gateway: Gateway) -> None:
    admin = gateway.broker.administration
    admin.put_vhost("v")
    admin.set_permission("guest", "v", Permission())
    peers = {}
    for name in ("here", "away"):
        peer = peers[name] = gateway.peer(5)
        peer.send(f.connect(name, version=5, clean=False, props=EXPIRY, user="v:guest", password=b""))
        peer.session.logged_in(gateway.guest)
        peer.subscribe(("a/#", 1))
    peers["away"].drop()
    elsewhere = gateway.connect("here", 5, clean=False, props=EXPIRY)
    admin.delete_vhost("v")
    gateway.settle()
    assert peers["here"].closed and not elsewhere.closed
    assert [client.client_id for client in gateway.clients] == ["here"]
    assert len(gateway.broker.connections) == 1
    again = gateway.restart()
    assert list(again.broker.vhosts) == ["/"] and len(again.clients) == 1
    again.stop()
