"""Polls, tails and WebSockets end with the login that they were begun with."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.support.brokers import Gateway
from tests.support.data_plane import SERVED
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own data plane")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("logins"), settings=SERVED) as running:
        yield running


def poll(base: str, headers: dict[str, str], queue: str, begun: Callable[[], None]) -> str:
    begun()
    with httpx.Client(base_url=f"http://{base}", headers=headers, timeout=90) as http:
        answer = http.post(f"queues/{queue}/pull", json={"wait_ms": 60_000})
    return f"{answer.status_code} {answer.json().get('code')}"


def tail(base: str, headers: dict[str, str], queue: str, begun: Callable[[], None]) -> str:
    with httpx.Client(base_url=f"http://{base}", headers=headers, timeout=90) as http:
        with http.stream("GET", "exchanges/amq.topic/tail") as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                if line == ": penstock":
                    begun()
                if line == "event: end":
                    return "ended"
    return "cut"


def websocket(base: str, headers: dict[str, str], queue: str, begun: Callable[[], None]) -> str:
    with connect(f"ws://{base}ws", additional_headers=headers, open_timeout=60, close_timeout=60) as socket:
        socket.send(json.dumps({"do": "subscribe", "id": 1, "queue": queue}))
        assert "subscribed" in str(socket.recv(timeout=60))
        begun()
        try:
            return str(socket.recv(timeout=90))
        except ConnectionClosed as closed:
            assert closed.rcvd is not None
            return f"closed {closed.rcvd.code}"


WAYS: tuple[tuple[Callable[..., str], str], ...] = (
    (poll, "401 not_authorized"),
    (tail, "ended"),
    (websocket, "closed 1008"),
)


def begin(gateway: Gateway, queue: str, headers: dict[str, str]) -> Callable[[], list[str]]:
    """Begin one of each; what is called then waits for how they end."""
    base = f"127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/"
    ends: dict[str, str] = {}
    begun = [threading.Event() for _ in WAYS]

    def run(way: Callable[..., str], event: threading.Event) -> None:
        ends[way.__name__] = way(base, headers, queue, event.set)

    threads = [
        threading.Thread(target=run, args=(way, event)) for (way, _), event in zip(WAYS, begun, strict=True)
    ]
    for thread in threads:
        thread.start()
    for event in begun:
        assert event.wait(60)

    def ended() -> list[str]:
        for thread in threads:
            thread.join(90)
        return [ends.get(way.__name__, "goes on") for way, _ in WAYS]

    return ended


def user(api: Api, name: str, password: str, tags: str = "management") -> None:
    status = api.status("PUT", f"users/{name}", {"password": password, "tags": tags})
    assert status in (201, 204)
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    assert api.status("PUT", f"permissions/%2F/{name}", rights) in (201, 204)


def token(gateway: Gateway, name: str) -> dict[str, str]:
    url = f"http://127.0.0.1:{gateway.ports['http']}/v1/tokens"
    made = httpx.post(url, auth=(name, "first"), json={"name": "t"}, timeout=90)
    assert made.status_code == 201, made.text
    return {"authorization": f"Bearer {made.json()['token']}"}


def session(gateway: Gateway, name: str) -> dict[str, str]:
    """The cookie of a page that the listener of the data plane would have served."""
    url = f"http://127.0.0.1:{gateway.ports['management']}/api/login"
    answer = httpx.post(url, json={"username": name, "password": "first"}, timeout=90)
    assert answer.status_code == 200, answer.text
    (value,) = answer.cookies.values()
    return {"cookie": f"penstock-{gateway.ports['http']}={value}"}


@pytest.mark.parametrize(
    "how", ["revoked token", "changed password", "deleted user", "logout", "changed tags"]
)
def test_a_waiting_request_ends_with_its_login(gateway: Gateway, api: Api, unique: str, how: str) -> None:
    name = unique
    user(api, name, "first")
    assert api.status("PUT", f"queues/%2F/{unique}", {"durable": True}) == 201
    if how == "changed password":
        encoded = base64.b64encode(f"{name}:first".encode()).decode()
        headers = {"authorization": f"Basic {encoded}"}
    elif how in ("logout", "changed tags"):
        headers = session(gateway, name)
    else:
        headers = token(gateway, name)
    ended = begin(gateway, unique, headers)
    within = time.monotonic() + 60
    while api.get(f"queues/%2F/{unique}")["consumers"] < 2:
        assert time.monotonic() < within, "the poll and the WebSocket do not wait"
    if how == "changed password":
        user(api, name, "second")
    elif how == "changed tags":
        user(api, name, "first", "monitoring")
    elif how == "logout":
        value = headers["cookie"].partition("=")[2]
        port = gateway.ports["management"]
        out = {"cookie": f"penstock-{port}={value}"}
        assert httpx.delete(f"http://127.0.0.1:{port}/api/login", headers=out, timeout=90).status_code == 204
    elif how == "revoked token":
        url = f"http://127.0.0.1:{gateway.ports['http']}/v1/tokens/t"
        assert httpx.delete(url, auth=(name, "first"), timeout=90).status_code == 204
    else:
        assert api.status("DELETE", f"users/{name}") == 204
    assert ended() == [end for _, end in WAYS]
