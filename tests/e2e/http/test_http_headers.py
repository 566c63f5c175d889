"""The meaning of message and request headers over HTTP: delays, copies, numbers, keys."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.brokers import Gateway
from tests.support.data_plane import SERVED, pull
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own data plane")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("http"), settings=SERVED) as running:
        yield running


def test_delays_over_http(gateway: Gateway, http: httpx.Client, queue: str, unique: str) -> None:
    path = f"queues/{queue}/messages"
    before_ms = time.time() * 1000
    for body in (
        {"value": "a", "delay_ms": 300},
        {"value": "b", "headers": {"x-penstock-deliver-after": 600}},
        {"value": "c", "deliver_at": int(before_ms) + 900},
    ):
        assert http.post(path, json=body).status_code == 200
    raw = {"content-type": "text/plain", "penstock-delay-ms": "1200"}
    assert http.post(path, content=b"d", headers=raw).status_code == 200
    got: dict[str, float] = {}
    while len(got) < 4:
        for message in pull(http, queue, wait_ms=30000):
            got[message["value"]] = time.time() * 1000
            assert "x-penstock-deliver-after" not in message["headers"]
            http.post(f"queues/{queue}/ack", json={"handles": [message["handle"]]})
    for value, least in (("a", 300), ("b", 600), ("c", 900), ("d", 1200)):
        assert got[value] >= before_ms + least, "never early"
    for bad in (
        {"delay_ms": "x"},
        {"deliver_at": "tomorrow"},
        {"delay_ms": 1, "deliver_at": 1},
        {"delay_ms": 10**15},
    ):
        answer = http.post(path, json={"value": "x", **bad})
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_field")


def test_an_exchange_that_delays_holds_messages_of_http(
    gateway: Gateway, http: httpx.Client, queue: str, unique: str
) -> None:
    api = Api(gateway)
    later = {"type": "x-delayed-message", "arguments": {"x-delayed-type": "direct"}}
    assert api.status("PUT", f"exchanges/%2F/{unique}.later", later) in (201, 204)
    binding = {"routing_key": "k"}
    assert api.status("POST", f"bindings/%2F/e/{unique}.later/q/{queue}", binding) == 201
    api.close()
    path = f"exchanges/{unique}.later/messages?routing_key=k"
    before = time.monotonic()
    assert http.post(path, json={"value": "late", "headers": {"x-delay": 300}}).status_code == 200
    assert http.post(path, json={"value": "soon"}).status_code == 200
    got: dict[str, float] = {}
    while len(got) < 2:
        for message in pull(http, queue, wait_ms=30000):
            got[message["value"]] = time.monotonic() - before
    assert set(got) == {"late", "soon"} and got["late"] >= 0.3, "never early"
    assert http.post(path, json={"value": "x", "headers": {"x-delay": "soon"}}).status_code == 400


def test_copies_go_to_further_keys(gateway: Gateway, http: httpx.Client, queue: str, unique: str) -> None:
    api = Api(gateway)
    for name in (f"{unique}.cc", f"{unique}.bcc"):
        assert api.status("PUT", f"queues/%2F/{name}", {"durable": True}) == 201
    api.close()
    headers = {"CC": [f"{unique}.cc"], "BCC": [f"{unique}.bcc"]}
    answer = http.post(f"queues/{queue}/messages", json={"value": "x", "headers": headers})
    assert answer.status_code == 200
    for name in (queue, f"{unique}.cc", f"{unique}.bcc"):
        (message,) = pull(http, name)
        assert message["headers"] == {"CC": [f"{unique}.cc"]}
    bad = http.post(f"queues/{queue}/messages", json={"value": "x", "headers": {"CC": "no list"}})
    assert bad.status_code == 400


def test_a_numbered_message_is_appended_once(http: httpx.Client, queue: str, unique: str) -> None:
    path = f"queues/{queue}/messages"

    def numbered(sequence: int) -> dict[str, Any]:
        headers = {"x-penstock-producer": unique, "x-penstock-sequence": sequence}
        answer = http.post(path, json={"value": str(sequence), "headers": headers})
        assert answer.status_code == 200
        result: dict[str, Any] = answer.json()["results"][0]
        return result

    first, again, second = numbered(1), numbered(1), numbered(2)
    assert again == {"id": first["id"], "duplicate": True} and "duplicate" not in second
    assert [one["value"] for one in pull(http, queue)] == ["1", "2"]
    assert http.post(path, json={"value": "x", "headers": {"x-penstock-producer": unique}}).status_code == 400


def test_an_idempotency_key_makes_a_request_happen_once(tmp_path: Path, unique: str) -> None:
    settings = {**SETTINGS, "http.listen": "127.0.0.1:0"}
    with Gateway(tmp_path / "once", settings=settings) as gateway:

        def post(key: str, *values: str) -> httpx.Response:
            return httpx.post(
                f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/queues/{unique}/messages",
                auth=("guest", "guest"),
                json={"messages": [{"value": value} for value in values]},
                headers={"idempotency-key": key},
                timeout=90,
            )

        api = Api(gateway)
        api.status("PUT", f"queues/%2F/{unique}", {"durable": True})
        api.close()
        first = post("k1", "a", "b").json()["results"]
        again = post("k1", "a", "b").json()["results"]
        assert again == [{**one, "duplicate": True} for one in first]
        assert post("k1", "other").json()["code"] == "idempotency_key_reused"
        assert "duplicate" not in post("k2", "a", "b").text
        gateway.kill9()
        gateway.start()
        assert post("k1", "a", "b").json()["results"] == again
        api = Api(gateway)
        assert api.get(f"queues/%2F/{unique}")["messages_ready"] == 4
        api.close()
