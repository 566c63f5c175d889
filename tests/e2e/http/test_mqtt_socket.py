"""MQTT over a WebSocket of HTTP's listeners: by the login of its request, and nobody else's."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import closing, contextmanager

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.support.brokers import Gateway
from tests.support.data_plane import SERVED, open_client, until
from tests.support.limits import LIMIT_S
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own data plane")

ALL = dict.fromkeys(("configure", "write", "read"), ".*")
CONNACK, PUBLISH, SUBACK = 2, 3, 9
NOT_AUTHORIZED, BAD_USER = 0x87, 0x86


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("mqtt_socket"), settings=SERVED) as running:
        yield running


@pytest.fixture
def api(gateway: Gateway) -> Iterator[Api]:
    with closing(Api(gateway)) as api:
        yield api


@pytest.fixture
def user(api: Api, unique: str) -> Iterator[str]:
    """A user who may do everything in the default vhost, with a password that is the name."""
    assert api.status("PUT", f"users/{unique}", {"password": unique, "tags": "management"}) == 201
    assert api.status("PUT", f"permissions/%2F/{unique}", ALL) == 201
    yield unique
    assert api.status("DELETE", f"users/{unique}") in (204, 404)


def _sized(text: str) -> bytes:
    return len(text.encode()).to_bytes(2, "big") + text.encode()


def _packet(first: int, rest: bytes) -> bytes:
    assert len(rest) < 128
    return bytes((first, len(rest))) + rest


def _connect(name: str) -> bytes:
    return _packet(0x10, _sized("MQTT") + b"\x05\x82\x00\x3c\x00" + _sized("page") + _sized(name))


SUBSCRIBE = _packet(0x82, b"\x00\x01\x00" + _sized("t/#") + b"\x01")


@contextmanager
def socket(gateway: Gateway, login: str | None, listener: str = "http") -> Iterator[ClientConnection]:
    headers = {}
    if login is not None:
        headers["authorization"] = f"Basic {base64.b64encode(f'{login}:{login}'.encode()).decode()}"
    with connect(
        f"ws://127.0.0.1:{gateway.ports[listener]}/v1/vhosts/%2F/mqtt",
        additional_headers=headers,
        subprotocols=["mqtt"],  # type: ignore[list-item]
        open_timeout=60,
        close_timeout=60,
    ) as connection:
        yield connection


def _next(connection: ClientConnection) -> bytes:
    """The bytes that come next; a packet of the gateway is sent whole."""
    data = connection.recv(timeout=60)
    assert isinstance(data, bytes)
    return data


@pytest.mark.parametrize("listener", ["http", "management"])
def test_a_client_without_a_password_is_the_user_of_the_request(
    gateway: Gateway, api: Api, user: str, listener: str
) -> None:
    with socket(gateway, user, listener) as connection:
        connection.send(_connect(f"/:{user}"))
        assert _next(connection)[0] >> 4 == CONNACK
        # Packets may span frames, and one frame may have several.
        connection.send(SUBSCRIBE[:3])
        connection.send(SUBSCRIBE[3:])
        suback = _next(connection)
        assert (suback[0] >> 4, suback[-1]) == (SUBACK, 1)
        (found,) = [one for one in api.get("connections") if one["user"] == user]
        assert (found["protocol"], found["vhost"]) == ("MQTT 5-0", "/")
        assert found["port"] == gateway.ports[listener]
        with open_client(gateway, user) as http:
            assert http.post("mqtt/messages?topic=t/a", json={"value": "hello"}).status_code == 200
        came = _next(connection)
        assert came[0] >> 4 == PUBLISH and came.endswith(b"hello") and b"t/a" in came
        connection.send(_packet(0x30, _sized("t/b") + b"\x00" + b"back"))
        assert _next(connection).endswith(b"back")
    until(lambda: not [one for one in api.get("connections") if one["user"] == user])
    (ended, *_) = api.get("closed-connections")
    assert (ended["user"], ended["protocol"]) == (user, "mqtt50")


@pytest.mark.parametrize(
    ("name", "code"), [("/:guest", BAD_USER), ("/:nobody", BAD_USER), ("other:{user}", NOT_AUTHORIZED)]
)
def test_another_name_or_vhost_is_refused(gateway: Gateway, user: str, name: str, code: int) -> None:
    """Rules about loopback do not hold either: the peer of the socket is a page somewhere."""
    with socket(gateway, user) as connection:
        connection.send(_connect(name.format(user=user)))
        connack = _next(connection)
        assert (connack[0] >> 4, connack[3]) == (CONNACK, code)
        with pytest.raises(ConnectionClosed):
            connection.recv(timeout=60)


def test_it_ends_with_the_login(gateway: Gateway, api: Api, user: str) -> None:
    with socket(gateway, user) as connection:
        connection.send(_connect(f"/:{user}"))
        assert _next(connection)[0] >> 4 == CONNACK
        assert api.status("PUT", f"users/{user}", {"password": "another", "tags": ""}) == 204
        with pytest.raises(ConnectionClosed) as ended:
            while True:
                connection.recv(timeout=60)
        assert ended.value.rcvd is not None and ended.value.rcvd.code == 1008
    until(lambda: not [one for one in api.get("connections") if one["user"] == user])


def test_a_stranger_a_page_of_another_site_and_text_are_refused(gateway: Gateway, user: str) -> None:
    with pytest.raises(InvalidStatus) as refused, socket(gateway, None):
        pass
    assert refused.value.response.status_code == 401
    answer = httpx.get(
        f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/mqtt",
        auth=(user, user),
        timeout=LIMIT_S,
        headers={"origin": "https://elsewhere.example", "upgrade": "websocket", "connection": "upgrade"},
    )
    assert (answer.status_code, answer.json()["code"]) == (403, "cross_site")
    with socket(gateway, user) as connection:
        connection.send("no bytes")
        with pytest.raises(ConnectionClosed) as ended:
            connection.recv(timeout=60)
        assert ended.value.rcvd is not None and ended.value.rcvd.code == 1003


def test_a_gateway_without_mqtt_says_so(gateway: Gateway, api: Api, user: str) -> None:
    node = api.get("overview")["node"]
    assert api.status("PUT", f"nodes/{node}/application", {"state": "stopped"}) == 200
    try:
        with pytest.raises(InvalidStatus) as refused, socket(gateway, user, "management"):
            pass
        assert refused.value.response.status_code == 404
        assert b"MQTT is off" in (refused.value.response.body or b"")
    finally:
        assert api.status("PUT", f"nodes/{node}/application", {"state": "running"}) == 200


def test_a_packet_in_front_of_the_close_is_heard(gateway: Gateway, api: Api, user: str) -> None:
    """A page says DISCONNECT and closes, and both come in one read."""
    with socket(gateway, user) as connection:
        connection.send(_connect(f"/:{user}"))
        assert _next(connection)[0] >> 4 == CONNACK
        mask = b"\0\0\0\0"
        connection.socket.sendall(b"\x82\x82" + mask + b"\xe0\x00" + b"\x88\x82" + mask + b"\x03\xe8")
        with pytest.raises(ConnectionClosed):
            connection.recv(timeout=60)
    until(lambda: [one for one in api.get("closed-connections") if one["user"] == user])
    ended = next(one for one in api.get("closed-connections") if one["user"] == user)
    assert ended["reason"] == "the client disconnected"
