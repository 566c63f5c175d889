"""A token given over one connection is valid over the next one, at any worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.brokers import Gateway
from tests.support.management import SETTINGS, Api
from tests.support.workers import until

pytestmark = pytest.mark.penstock_only("this is about penstock's own workers and data plane")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {**SETTINGS, "http.listen": "127.0.0.1:0", "server.workers": "2"}
    with Gateway(tmp_path_factory.mktemp("tokens"), settings=settings) as running:
        api = Api(running)
        for number in (0, 1):
            assert api.status("PUT", f"vhosts/of{number}", {"worker": number}) == 201
        api.close()
        yield running


class Strangers:
    """Each request over a connection of its own."""

    def __init__(self, gateway: Gateway, vhost: str) -> None:
        self._base = f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/{vhost}/"

    def __call__(self, method: str, path: str, body: object = None, **headers: str) -> httpx.Response:
        return httpx.request(
            method,
            self._base + path,
            json=body,
            auth=("guest", "guest"),
            timeout=60,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )


def values(answer: httpx.Response) -> list[str]:
    return [message["value"] for message in answer.json()["messages"]]


@pytest.mark.parametrize("vhost", ["of0", "of1"])
def test_leases_transactions_and_keys_are_good_over_any_connection(
    gateway: Gateway, vhost: str, unique: str
) -> None:
    ask = Strangers(gateway, vhost)
    api = Api(gateway)
    assert api.status("PUT", f"queues/{vhost}/{unique}", {"durable": True}) == 201
    api.close()
    messages = f"queues/{unique}/messages"

    def said(method: str, path: str, body: object = None, **headers: str) -> dict[str, Any]:
        answer = ask(method, path, body, **headers)
        assert answer.status_code in (200, 201, 202), (path, answer.text)
        found: dict[str, Any] = answer.json()
        return found

    def handle() -> str:
        (message,) = said("POST", f"queues/{unique}/pull", {"max_messages": 1, "wait_ms": 60_000})["messages"]
        return str(message["handle"])

    for round_ in range(4):
        said("POST", messages, {"messages": [{"value": f"a{round_}"}]})
        first = handle()
        said("POST", f"queues/{unique}/extend", {"handles": [first], "lease_ms": 600_000})
        said("POST", f"queues/{unique}/nack", {"handles": [first]})
        assert ask("POST", f"queues/{unique}/ack", {"handles": [first]}).status_code == 409
        again = handle()
        said("POST", f"queues/{unique}/ack", {"handles": [again]})

        key = {"Idempotency_Key": f"{unique}-{round_}"}
        once = said("POST", messages, {"messages": [{"value": "k"}]}, **key)
        twice = said("POST", messages, {"messages": [{"value": "k"}]}, **key)
        assert once["results"][0]["id"] == twice["results"][0]["id"] and twice["results"][0]["duplicate"]

        pulled = handle()
        id = said("POST", "transactions", {"timeout_ms": 600_000})["id"]
        said("POST", f"{messages}?txn={id}", {"messages": [{"value": "t"}]})
        said("POST", f"queues/{unique}/ack?txn={id}", {"handles": [pulled]})
        shown = said("GET", f"transactions/{id}")
        assert (shown["messages"], shown["handles"]) == (1, 1)
        committed = said("POST", f"transactions/{id}/commit")
        repeated = said("POST", f"transactions/{id}/commit")
        assert committed["results"] == repeated["results"] and repeated["duplicate"]
        said("POST", f"queues/{unique}/ack", {"handles": [handle()]})
    left = ask("POST", f"queues/{unique}/pull", {"wait_ms": 0})
    assert values(left) == []


@pytest.mark.parametrize("vhost", ["of0", "of1"])
def test_places_producers_and_logins_are_good_over_any_connection(
    gateway: Gateway, vhost: str, unique: str
) -> None:
    ask = Strangers(gateway, vhost)
    assert ask("PUT", f"streams/{unique}").status_code == 201
    assert ask("PUT", f"streams/{unique}/subscriptions/s", {"start": "earliest"}).status_code == 201
    begun = ask("POST", "producers", {"name": unique})
    assert begun.status_code in (200, 201), begun.text
    epoch = str(begun.json()["epoch"])
    for sequence in range(4):
        number = {"Penstock_Producer": unique, "Penstock_Epoch": epoch, "Penstock_Sequence": str(sequence)}
        body = {"messages": [{"value": str(sequence)}]}
        first, second = (ask("POST", f"streams/{unique}/messages", body, **number) for _ in range(2))
        assert first.json()["results"][0]["id"] == second.json()["results"][0]["id"], second.text
    place, read = "first", []
    for _ in range(4):
        one = ask("GET", f"streams/{unique}/messages?from={place}&max=1&wait_ms=60000")
        place = one.json()["next"]
        read += values(one)
    assert read == ["0", "1", "2", "3"]
    base = f"http://127.0.0.1:{gateway.ports['http']}/v1/"
    made = httpx.post(
        f"{base}tokens", json={"name": f"{unique}-{vhost}"}, auth=("guest", "guest"), timeout=60
    )
    assert made.status_code == 201, made.text
    bearer = {"authorization": f"Bearer {made.json()['token']}"}
    for _ in range(4):
        shown = httpx.get(f"{base}vhosts/{vhost}/streams/{unique}", headers=bearer, timeout=60)
        assert shown.status_code == 200, shown.text


def test_the_audit_trail_has_what_each_worker_did(gateway: Gateway, unique: str) -> None:
    api = Api(gateway)
    for vhost in ("of0", "of1"):
        assert api.status("PUT", f"queues/{vhost}/{unique}", {"durable": True}) == 201
    found: list[dict[str, Any]] = []

    def both() -> bool:
        found[:] = [one for one in api.get("audit?action=queue") if one["target"].get("name") == unique]
        return len(found) == 2

    until(both, gateway)
    assert [(one["target"]["vhost"], one["worker"]) for one in found] == [("of0", 0), ("of1", 1)]
    assert {(one["user"], one["peer"], one["result"]) for one in found} == {("guest", "127.0.0.1", "done")}
    verdicts = api.get("audit/verify")
    assert [(one["worker"], one["whole"]) for one in verdicts] == [(0, True), (1, True)]
    api.close()
