"""All logins of all protocols: wrong ones slow further ones down, and lock nobody out."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Callable, Iterator

import httpx
import paho.mqtt.client as paho
import pika
import pika.credentials
import pika.exceptions
import pytest

from penstock.errors import PenstockError
from penstock.sync import connect as sdk_connect
from tests.support.brokers import Gateway
from tests.support.data_plane import SERVED
from tests.support.limits import LIMIT_S
from tests.support.management import Api
from tests.support.tokens import AUDIENCE, ISSUER, jwk, key_set, token

pytestmark = pytest.mark.penstock_only("RabbitMQ has no such limit")

ALL = "broker.configure:*/* broker.read:*/* broker.write:*/* broker.tag:administrator"
WRONG = 11
"""Wrong logins: one more than are judged at once."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("limits")
    keys = folder / "keys.json"
    keys.write_bytes(key_set(jwk("one")))
    settings = {
        **SERVED,
        "native.listen": "127.0.0.1:0",
        "mqtt.ws_listen": "127.0.0.1:0",
        "oauth.issuer": ISSUER,
        "oauth.resource_server_id": AUDIENCE,
        "oauth.jwks_file": str(keys),
    }
    with Gateway(folder / "data", settings=settings) as running:
        yield running


# One login each: whether it was let in


def amqp(gateway: Gateway, user: str, secret: str) -> bool:
    parameters = pika.ConnectionParameters(
        "127.0.0.1", gateway.amqp_port, credentials=pika.PlainCredentials(user, secret)
    )
    try:
        pika.BlockingConnection(parameters).close()
    except pika.exceptions.AMQPConnectionError:
        return False
    return True


def _mqtt(gateway: Gateway, user: str, secret: str, transport: str, protocol: int) -> bool:
    codes: queue.SimpleQueue[bool] = queue.SimpleQueue()
    client = paho.Client(
        paho.CallbackAPIVersion.VERSION2,
        transport=transport,  # type: ignore[arg-type]
        protocol=protocol,  # type: ignore[arg-type]
        reconnect_on_failure=False,
    )
    client.username_pw_set(user, secret)
    client.on_connect = lambda *told: codes.put(not told[3].is_failure)
    client.connect("127.0.0.1", gateway.ports["ws"] if transport == "websockets" else gateway.mqtt_port)
    client.loop_start()
    try:
        return codes.get(timeout=LIMIT_S)
    finally:
        client.disconnect()
        client.loop_stop()


def mqtt3(gateway: Gateway, user: str, secret: str) -> bool:
    return _mqtt(gateway, user, secret, "tcp", paho.MQTTv311)


def mqtt5(gateway: Gateway, user: str, secret: str) -> bool:
    return _mqtt(gateway, user, secret, "tcp", paho.MQTTv5)


def mqtt_websocket(gateway: Gateway, user: str, secret: str) -> bool:
    return _mqtt(gateway, user, secret, "websockets", paho.MQTTv5)


def native(gateway: Gateway, user: str, secret: str) -> bool:
    try:
        with sdk_connect(f"penstock://{user}:{secret}@127.0.0.1:{gateway.ports['native']}") as client:
            client.admin.topics()
            return True
    except PenstockError:
        return False


def _http(listener: str, path: str, *, http2: bool = False, bearer: bool = False) -> Callable[..., bool]:
    def login(gateway: Gateway, user: str, secret: str) -> bool:
        headers = {"authorization": f"Bearer {secret}"} if bearer else {}
        base = f"http://127.0.0.1:{gateway.ports[listener]}"
        auth = None if bearer else (user, secret)
        with httpx.Client(
            base_url=base, auth=auth, headers=headers, http1=not http2, http2=http2, timeout=LIMIT_S
        ) as http:
            answer = http.get(path)
            assert answer.status_code in (200, 401), answer.text
            return answer.status_code == 200

    return login


LOGINS: dict[str, Callable[[Gateway, str, str], bool]] = {
    "amqp": amqp,
    "mqtt 3.1.1": mqtt3,
    "mqtt 5": mqtt5,
    "mqtt websocket": mqtt_websocket,
    "native": native,
    "management": _http("management", "/api/whoami"),
    "management http2": _http("management", "/api/whoami", http2=True),
    "data": _http("http", "/v1/tokens"),
    "data http2": _http("http", "/v1/tokens", http2=True),
    "metrics": _http("metrics", "/metrics"),
}
BEARERS: dict[str, Callable[[Gateway, str, str], bool]] = {
    "management bearer": _http("management", "/api/whoami", bearer=True),
    "data bearer": _http("http", "/v1/vhosts/%2F/streams", bearer=True),
    "data bearer http2": _http("http", "/v1/vhosts/%2F/streams", bearer=True, http2=True),
}


def at_once(login: Callable[[Gateway, str, str], bool], gateway: Gateway, *who: str) -> list[bool]:
    """So many wrong logins, at the same time."""

    async def run() -> list[bool]:
        return await asyncio.gather(*(asyncio.to_thread(login, gateway, *who) for _ in range(WRONG)))

    return asyncio.run(run())


def make_user(gateway: Gateway, name: str) -> None:
    api = Api(gateway)
    assert api.status("PUT", f"users/{name}", {"password": name, "tags": "administrator"}) in (201, 204)
    grant = dict.fromkeys(("configure", "write", "read"), ".*")
    assert api.status("PUT", f"permissions/%2F/{name}", grant) in (201, 204)
    api.close()


@pytest.mark.parametrize("name", [name for name in LOGINS if name != "metrics"])
def test_right_passwords_are_let_in_after_wrong_ones(gateway: Gateway, name: str) -> None:
    """Of the user whose logins failed, by this protocol and every other; of others without a wait."""
    login, user = LOGINS[name], f"u-{name.replace(' ', '-').replace('.', '-')}"
    make_user(gateway, user)
    assert not any(at_once(login, gateway, user, "wrong"))
    begun = time.monotonic()
    assert login(gateway, user, user)
    assert time.monotonic() - begun >= 0.9, "it waited for its turn"
    assert login(gateway, "guest", "guest")


@pytest.mark.parametrize("name", list(BEARERS))
def test_right_tokens_are_let_in_after_wrong_ones(gateway: Gateway, name: str) -> None:
    login = BEARERS[name]
    for wrong in (token(ALL, key="two", headers={"kid": "one"}), "pst_wrong", "nonsense"):
        assert not any(at_once(login, gateway, "", wrong))
        assert login(gateway, "", token(ALL, user="alice"))
    # A token is a password of the others, too.
    for other in (amqp, mqtt5, native):
        assert not other(gateway, "x", token(ALL, key="two", headers={"kid": "one"}))
        assert other(gateway, "x", token(ALL, user="alice"))


def test_many_wrong_names_are_slowed_down(gateway: Gateway) -> None:
    """Sixty names with one password; who is right gets in meanwhile, by every login."""
    login = LOGINS["data"]

    async def run() -> float:
        begun = time.monotonic()
        tries = (asyncio.to_thread(login, gateway, f"nobody{number}", "guest") for number in range(60))
        assert not any(await asyncio.gather(*tries))
        return time.monotonic() - begun

    assert asyncio.run(run()) >= 1.9
    make_user(gateway, "newcomer")
    for name, each in LOGINS.items():
        if name != "metrics":
            assert each(gateway, "newcomer", "newcomer"), name
