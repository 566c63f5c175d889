"""Pulls over HTTP that wait for so much; and bodies that say what they cannot mean."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.support.brokers import Gateway
from tests.support.data_plane import SERVED, make_queue, open_client, until
from tests.support.limits import LIMIT_S

pytestmark = pytest.mark.penstock_only("the data plane is penstock's own")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("pull"), settings=SERVED) as running:
        yield running


@pytest.fixture
def http(gateway: Gateway) -> Iterator[httpx.Client]:
    with open_client(gateway) as client:
        yield client


def publish(http: httpx.Client, stream: str, *values: str) -> None:
    messages = {"messages": [{"value": value} for value in values]}
    assert http.post(f"streams/{stream}/messages", json=messages).status_code == 200


def pull(http: httpx.Client, source: str, **fields: Any) -> list[str]:
    answer = http.post(f"{source}/pull", json={"wait_ms": 60_000, **fields})
    assert answer.status_code == 200, answer.text
    return [one["value"] for one in answer.json()["messages"]]


@pytest.mark.parametrize("least", [{"min_messages": 3}, {"min_bytes": 5}], ids=["messages", "bytes"])
def test_a_pull_waits_for_so_much(
    http: httpx.Client, gateway: Gateway, unique: str, least: dict[str, int]
) -> None:
    """Two are there when it begins, which it would be answered with at once; others get on meanwhile."""
    http.put(f"streams/{unique}")
    http.put(f"streams/{unique}/subscriptions/s")
    source = f"streams/{unique}/subscriptions/s"
    publish(http, unique, "ab", "cd")
    with ThreadPoolExecutor(1) as pool, open_client(gateway) as other:
        waiting = pool.submit(pull, other, source, **least)
        until(lambda: http.get(source).json()["unacked"] == 2)
        assert not waiting.done()
        publish(http, unique, "ef")
        assert waiting.result(timeout=LIMIT_S) == ["ab", "cd", "ef"]


def test_after_the_wait_it_has_what_there_is(http: httpx.Client, unique: str) -> None:
    http.put(f"streams/{unique}")
    http.put(f"streams/{unique}/subscriptions/s")
    source = f"streams/{unique}/subscriptions/s"
    publish(http, unique, "a", "b", "c")
    assert pull(http, source, min_messages=5, wait_ms=1) == ["a", "b", "c"]
    publish(http, unique, "d", "e")
    assert pull(http, source, min_messages=5, max_messages=1) == ["d"], "it may have no more"
    assert pull(http, source, min_bytes=5, max_bytes=1) == ["e"], "it may have no more"


WRONG = {
    "pull": [{"max_mesages": 5}, {"min_messages": 0}, {"min_bytes": -1}],
    "ack": [{"handles": [], "handle": "a"}],
    "nack": [
        {"handles": [], "dead_letter": "yes"},
        {"handles": [], "dead_letter": True, "delay_ms": 5},
        {"handles": [], "requeue": False},
    ],
    "extend": [{"handles": [], "ms": 5}],
}


@pytest.mark.parametrize(("verb", "body"), [(verb, body) for verb, wrong in WRONG.items() for body in wrong])
def test_unknown_fields_are_refused(
    http: httpx.Client, gateway: Gateway, unique: str, verb: str, body: dict[str, Any]
) -> None:
    make_queue(gateway, unique)
    answer = http.post(f"queues/{unique}/{verb}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_field"), answer.text
    assert any(field in answer.json()["detail"] for field in body if field != "handles")


def test_a_pull_that_goes_on_waits_for_no_more(http: httpx.Client, gateway: Gateway, unique: str) -> None:
    make_queue(gateway, unique)
    answer = http.post(
        f"queues/{unique}/pull", json={"min_messages": 2}, headers={"accept": "application/x-ndjson"}
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_field")


def test_a_transaction_and_a_half_message_go_to_a_stream_by_that_name(
    http: httpx.Client, unique: str
) -> None:
    http.put(f"streams/{unique}")
    done = http.post("transactions", json={"publish": [{"stream": unique, "value": "a"}]})
    assert done.status_code == 200, done.text
    name = http.post("half", json={"stream": unique, "message": {"value": "b"}}).json()["name"]
    assert http.post(f"half/{name}/commit").status_code == 200
    read = http.get(f"streams/{unique}/messages?wait_ms=60000").json()["messages"]
    assert [one["value"] for one in read] == ["a", "b"]
    both = http.post("half", json={"stream": unique, "queue": unique, "message": {"value": "b"}})
    assert (both.status_code, both.json()["code"]) == (400, "bad_field")


def test_a_pull_needs_no_body(http: httpx.Client, queue: str) -> None:
    http.post(f"queues/{queue}/messages", json={"value": "a"})
    answer = http.post(f"queues/{queue}/pull")
    assert answer.status_code == 200 and [one["value"] for one in answer.json()["messages"]] == ["a"]
