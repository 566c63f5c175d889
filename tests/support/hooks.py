"""Webhooks from outside: requests about them, and the fixtures of tests that have a receiver."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.support.brokers import Gateway
from tests.support.management import SETTINGS, Api
from tests.support.receiver import Got, Receiver

__all__ = ["FAST", "LOCAL", "Hooks", "bodies", "check_hmac", "hooks", "hooks_of", "receiver"]

LOCAL = {**SETTINGS, "http.listen": "127.0.0.1:0", "webhooks.allow_networks": "127.0.0.0/8"}
FAST = {"schedule_ms": [20, 20, 20, 20, 20], "max_age_ms": 600_000, "refused_attempts": 3}


class Hooks:
    """Requests to the data plane of a gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/",
            auth=("guest", "guest"),
            timeout=60,
        )
        self._api = Api(gateway)

    def close(self) -> None:
        self.client.close()
        self._api.close()

    def queue(self, name: str, **arguments: Any) -> str:
        assert self._api.status("PUT", f"queues/%2F/{name}", {"durable": True, "arguments": arguments}) == 201
        return name

    def put(self, name: str, **settings: Any) -> dict[str, Any]:
        settings.setdefault("retry", FAST)
        settings.setdefault("format", "raw")
        settings.setdefault("timeout_ms", 120_000)
        answer = self.client.put(f"webhooks/{name}", json=settings)
        assert answer.status_code in (200, 201), answer.text
        made: dict[str, Any] = answer.json()
        return made

    def follow(self, name: str, receiver: Receiver) -> str:
        """An active webhook from a new queue, both of this name, to the receiver; its secret."""
        self.queue(name)
        secret: str = self.put(name, source={"queue": name}, url=receiver.url)["secret"]
        self.wait(name, lambda shown: shown["state"] == "active")
        return secret

    def publish(self, queue: str, *values: str, **fields: Any) -> None:
        messages = [{"value": value, **fields} for value in values]
        answer = self.client.post(f"queues/{queue}/messages", json={"messages": messages})
        assert answer.status_code == 200, answer.text

    def post(self, path: str, body: object = None) -> httpx.Response:
        return self.client.post(path, json=body) if body is not None else self.client.post(path)

    def show(self, name: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.client.get(f"webhooks/{name}").json()
        return shown

    def wait(self, name: str, condition: Callable[[dict[str, Any]], bool], timeout_s: float = 60) -> Any:
        """Wait until what is shown of a webhook meets a condition."""
        deadline = time.monotonic() + timeout_s
        while not condition(shown := self.show(name)):
            assert time.monotonic() < deadline, shown
            time.sleep(0.02)
        return shown

    def attempts(self, name: str, count: int) -> list[dict[str, Any]]:
        """The delivery log, which has so many entries in a while."""
        deadline = time.monotonic() + 60
        while True:
            read = self.client.get(f"webhooks/{name}/attempts", params={"max": 1000}).json()
            if len(read["messages"]) >= count:
                return [json.loads(message["value"]) for message in read["messages"]]
            assert time.monotonic() < deadline, read
            time.sleep(0.02)


@pytest.fixture
def hooks_of() -> Iterator[Callable[[Gateway], Hooks]]:
    """Makes clients, and closes them."""
    made: list[Hooks] = []

    def make(gateway: Gateway) -> Hooks:
        made.append(Hooks(gateway))
        return made[-1]

    yield make
    for hooks in made:
        hooks.close()


@pytest.fixture
def hooks(gateway: Gateway, hooks_of: Callable[[Gateway], Hooks]) -> Hooks:
    """Requests to the gateway of a module."""
    return hooks_of(gateway)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


def bodies(got: list[Got]) -> list[str]:
    return [one.body.decode() for one in got]


def check_hmac(got: Got, secret: str) -> None:
    """As a receiver written by the specification would."""
    signed = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert expected in got.headers["webhook-signature"].split(" ")
