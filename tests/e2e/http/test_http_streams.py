"""Streams and subscriptions of all kinds over HTTP, and tails that begin where another one ended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.brokers import Gateway
from tests.support.data_plane import SERVED, make_queue, open_client, pull, until
from tests.support.limits import LIMIT_S
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own data plane")

LONG_MS = 600_000


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("streams"), settings=SERVED) as running:
        yield running


@pytest.fixture
def http(gateway: Gateway) -> Iterator[httpx.Client]:
    with open_client(gateway) as client:
        yield client


@pytest.fixture
def stream(http: httpx.Client, unique: str) -> str:
    """A stream."""
    assert http.put(f"streams/{unique}").status_code == 201
    return unique


def publish(http: httpx.Client, stream: str, *values: str, **fields: Any) -> None:
    body = {"messages": [{"value": value, **fields} for value in values]}
    answer = http.post(f"streams/{stream}/messages", json=body)
    assert answer.status_code == 200, answer.text


class Subscription:
    """One, from outside."""

    def __init__(self, http: httpx.Client, stream: str, name: str, **options: Any) -> None:
        self.http = http
        self.path = f"streams/{stream}/subscriptions/{name}"
        answer = http.put(self.path, json={"start": "earliest", **options})
        assert answer.status_code == 201, answer.text

    def pull(self, **body: Any) -> list[dict[str, Any]]:
        answer = self.http.post(f"{self.path}/pull", json={"lease_ms": LONG_MS, **body})
        assert answer.status_code == 200, answer.text
        messages: list[dict[str, Any]] = answer.json()["messages"]
        return messages

    def post(self, verb: str, **body: Any) -> httpx.Response:
        return self.http.post(f"{self.path}/{verb}", json=body)

    def show(self) -> dict[str, Any]:
        shown: dict[str, Any] = self.http.get(self.path).json()
        return shown


def values(messages: list[dict[str, Any]]) -> list[str]:
    return [message["value"] for message in messages]


def handles(messages: list[dict[str, Any]]) -> list[str]:
    return [message["handle"] for message in messages]


def test_a_stream_is_made_shown_and_deleted(http: httpx.Client, unique: str) -> None:
    path = f"streams/{unique}"
    assert http.put(path, json={"max_age": "7D"}).status_code == 201
    again = http.put(path, json={"max_age": "7D"})
    assert (again.status_code, again.json()["max_age"]) == (200, "7D")
    other = http.put(path, json={"max_age": "1D"})
    assert (other.status_code, other.json()["code"]) == (409, "inequivalent")
    publish(http, unique, "a", "b")
    until(lambda: http.get(path).json()["next_offset"] == 2)
    assert unique in [one["name"] for one in http.get("streams").json()["streams"]]
    assert http.delete(path).status_code == 204
    assert http.get(path).status_code == 404
    missing = http.post(f"{path}/messages", json={"value": "x"})
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    assert http.put(path, json={"max_aeg": "7D"}).json()["code"] == "bad_field"


def test_each_shared_subscription_has_all_and_its_pulls_share_them(http: httpx.Client, stream: str) -> None:
    publish(http, stream, *map(str, range(10)))
    one, two = Subscription(http, stream, "one"), Subscription(http, stream, "two")
    first, second = one.pull(max_messages=4, wait_ms=60_000), one.pull(max_messages=10, wait_ms=60_000)
    assert values(first) + values(second) == list(map(str, range(10)))
    assert values(two.pull(max_messages=10, wait_ms=60_000)) == list(map(str, range(10)))
    assert one.post("ack", handles=handles(first)).status_code == 200
    assert one.post("nack", handles=handles(second)[:1]).status_code == 200
    assert one.post("ack", handles=handles(second)[1:]).status_code == 200
    (again,) = one.pull(wait_ms=60_000)
    assert (again["value"], again["redelivered"]) == ("4", True)
    assert one.post("nack", handles=[again["handle"]], delay_ms=50).status_code == 200
    (again,) = one.pull(wait_ms=60_000)
    assert again["value"] == "4"
    refused = one.post("ack-cumulative", handle=again["handle"])
    assert (refused.status_code, refused.json()["code"]) == (409, "wrong_mode")
    one.post("ack", handles=[again["handle"]])
    assert one.show()["acknowledged"] == 10 and one.show()["unacked"] == 0
    assert two.show()["unacked"] == 10


def test_put_is_idempotent_and_tells_what_differs(http: httpx.Client, stream: str) -> None:
    one = Subscription(http, stream, "s", kind="failover", max_deliveries=3)
    assert http.put(one.path, json={"kind": "failover", "max_deliveries": 3}).status_code == 200
    other = http.put(one.path, json={"kind": "shared", "max_deliveries": 3})
    assert (other.status_code, other.json()["code"]) == (409, "inequivalent")
    assert one.show()["max_deliveries"] == 3
    names = http.get(f"streams/{stream}/subscriptions").json()["subscriptions"]
    assert [each["name"] for each in names] == ["s"]
    assert http.delete(one.path).status_code == 204
    assert http.get(one.path).status_code == 404
    assert http.put(one.path, json={"kind": "pubsub"}).json()["code"] == "bad_field"
    assert http.put(one.path, json={"start": "tomorrow"}).json()["code"] == "bad_field"


def test_an_exclusive_subscription_is_one_consumers_and_acknowledged_cumulatively(
    http: httpx.Client, stream: str
) -> None:
    publish(http, stream, *map(str, range(6)))
    one = Subscription(http, stream, "x", kind="exclusive")
    nameless = one.post("pull", wait_ms=0)
    assert (nameless.status_code, nameless.json()["code"]) == (400, "bad_field")
    got = one.pull(consumer="a", max_messages=6, wait_ms=60_000)
    assert values(got) == list(map(str, range(6)))
    busy = one.post("pull", consumer="b", wait_ms=0)
    assert (busy.status_code, busy.json()["code"]) == (409, "subscription_busy")
    done = one.post("ack-cumulative", handle=got[3]["handle"])
    assert (done.status_code, done.json()) == (200, {"acknowledged": 4})
    assert one.post("ack", handles=[got[3]["handle"]]).status_code == 409
    assert one.show()["acknowledged"] == 4
    assert one.post("ack", handles=handles(got)[4:]).status_code == 200


def test_a_seek_voids_what_is_leased_and_goes_on_there(http: httpx.Client, stream: str) -> None:
    publish(http, stream, *"abcd")
    one = Subscription(http, stream, "s")
    got = one.pull(max_messages=10, wait_ms=60_000)
    one.post("ack", handles=handles(got)[:2])
    third = int(got[2]["id"].partition(":")[2])
    assert one.post("seek", to="earliest").status_code == 200
    stale = one.post("ack", handles=handles(got)[2:])
    assert (stale.status_code, stale.json()["code"]) == (409, "stale_handle")
    again = one.pull(max_messages=10, wait_ms=60_000)
    assert values(again) == list("abcd")
    assert one.post("seek", to=f"pos:{third}").status_code == 200
    assert values(one.pull(max_messages=10, wait_ms=60_000)) == ["c", "d"]
    one.post("seek", to="latest")
    publish(http, stream, "e")
    assert values(one.pull(wait_ms=60_000)) == ["e"]


def test_a_paused_subscription_gives_nothing_until_it_is_resumed(http: httpx.Client, stream: str) -> None:
    one = Subscription(http, stream, "s")
    publish(http, stream, "a", "b", "c")
    (held,) = one.pull(max_messages=1, wait_ms=60_000)
    assert one.show()["paused"] is False
    for _ in range(2):
        paused = one.post("pause")
        assert (paused.status_code, paused.json()["paused"], paused.json()["backlog"]) == (200, True, 2)
    assert one.show()["paused"] is True
    assert one.pull(wait_ms=0) == []
    lines = http.post(f"{one.path}/pull", json={"wait_ms": 0}, headers={"accept": "application/x-ndjson"})
    assert "nothing came" in json.loads(lines.text)["end"]
    assert one.post("ack", handles=[held["handle"]]).status_code == 200, "what is out may be settled"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(one.pull, wait_ms=60_000)
        until(lambda: one.show()["consumers"] == 1)
        resumed = one.post("resume")
        assert (resumed.status_code, resumed.json()["paused"]) == (200, False)
        assert values(waiting.result(90)) == ["b", "c"]
    assert http.post(f"{one.path}/resume").status_code == 200, "without a body, and again"


def test_a_pause_outlives_a_kill(gateway: Gateway, unique: str) -> None:
    with open_client(gateway) as http:
        http.put(f"streams/{unique}")
        one = Subscription(http, unique, "s")
        publish(http, unique, "a")
        assert one.post("pause").status_code == 200
    gateway.kill9()
    gateway.start()
    with open_client(gateway) as one.http:
        assert one.show()["paused"] is True
        assert one.pull(wait_ms=0) == []
        assert one.post("resume").status_code == 200
        assert values(one.pull(wait_ms=60_000)) == ["a"]


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_an_impossible_pause_is_refused(gateway: Gateway, http: httpx.Client, stream: str, verb: str) -> None:
    Subscription(http, stream, "s")

    def refused(path: str, body: Any = None, client: httpx.Client = http) -> tuple[int, str]:
        answer = client.post(f"streams/{path}/{verb}", json=body)
        return answer.status_code, answer.json()["code"]

    assert refused(f"{stream}/subscriptions/none") == (404, "not_found")
    assert refused("no.stream/subscriptions/s") == (404, "not_found")
    assert refused(f"{stream}/subscriptions/s", {"for": 1}) == (400, "bad_field")
    make_queue(gateway, f"{stream}-queue")
    assert refused(f"{stream}-queue/subscriptions/s") == (409, "wrong_mode")
    api = Api(gateway)
    assert api.status("PUT", f"users/{stream}", {"password": stream, "tags": ""}) in (201, 204)
    rights = {"configure": ".*", "write": ".*", "read": "^other$"}
    assert api.status("PUT", f"permissions/%2F/{stream}", rights) in (201, 204)
    api.close()
    with open_client(gateway, stream) as other:
        for name in (stream, "no.stream"):
            assert refused(f"{name}/subscriptions/s", client=other) == (403, "access_refused")
    assert http.get(f"streams/{stream}/subscriptions/s").json()["paused"] is False


def test_failover_has_one_active_consumer_and_hands_over(http: httpx.Client, stream: str) -> None:
    one = Subscription(http, stream, "f", kind="failover")
    publish(http, stream, "first")
    until(lambda: values(one.pull(consumer="m", wait_ms=100)) == ["first"])
    # The name decides which consumer is active: exactly one of these is, in any order of arrival.
    with ThreadPoolExecutor(4) as pool:
        names = ["a", "b", "c", "d"]
        for name in names:
            one.pull(consumer=name, wait_ms=0)
        publish(http, stream, "second")

        def pull(name: str) -> tuple[bool, list[str]]:
            answer = one.post("pull", consumer=name, wait_ms=3000, lease_ms=LONG_MS).json()
            return answer["active"], values(answer["messages"])

        got = list(pool.map(pull, names))
    active = [name for name, (is_active, _) in zip(names, got, strict=True) if is_active]
    assert len(active) <= 1, "m may be it, who pulls no more"
    assert {name for name, (_, found) in zip(names, got, strict=True) if found} <= set(active)


def test_of_the_consumers_of_a_failover_subscription_one_is_active(http: httpx.Client, stream: str) -> None:
    one = Subscription(http, stream, "f", kind="failover")
    names = [f"consumer {n}" for n in range(8)]

    def active(name: str) -> bool:
        return bool(one.post("pull", consumer=name, wait_ms=0).json()["active"])

    until(lambda: [active(name) for name in names].count(True) == 1)


def test_each_key_stays_with_one_consumer(http: httpx.Client, stream: str) -> None:
    one = Subscription(http, stream, "k", kind="key_shared")
    for name in ("a", "b"):
        one.pull(consumer=name, wait_ms=0)
    body = {"messages": [{"value": f"{n}", "key": f"k{n % 20}"} for n in range(200)]}
    assert http.post(f"streams/{stream}/messages", json=body).status_code == 200
    holders: dict[str, set[str]] = {}
    order: dict[str, list[int]] = {}
    total = 0
    ends = time.monotonic() + 60
    while total < 200:
        assert time.monotonic() < ends
        for name in ("a", "b"):
            got = one.pull(consumer=name, max_messages=30, wait_ms=20)
            for message in got:
                holders.setdefault(message["key"], set()).add(name)
                order.setdefault(message["key"], []).append(int(message["value"]))
            total += len(got)
            if got:
                assert one.post("ack", handles=handles(got)).status_code == 200
    assert all(len(names) == 1 for names in holders.values()), holders
    assert {name for names in holders.values() for name in names} == {"a", "b"}
    assert all(numbers == sorted(numbers) for numbers in order.values())


def test_a_message_and_the_acknowledgement_of_a_subscription_are_one_unit(
    http: httpx.Client, stream: str
) -> None:
    publish(http, stream, "in")
    one = Subscription(http, stream, "t")
    (got,) = one.pull(wait_ms=60_000)
    body = {
        "publish": [{"queue": stream, "value": "out"}],
        "ack": [{"stream": stream, "subscription": "t", "handles": [got["handle"]]}],
    }
    assert http.post("transactions", json=body).status_code == 200
    assert values(one.pull(wait_ms=60_000)) == ["out"]
    assert one.show()["acknowledged"] == 1


def test_a_subscription_is_listed_by_a_name_of_its_own(
    http: httpx.Client, gateway: Gateway, stream: str
) -> None:
    assert http.put(f"streams/{stream}/subscriptions/s", json={}).status_code == 201
    api = Api(gateway)
    listed = {queue["name"] for queue in api.get("queues/%2F")}
    assert f"subscription-{stream}/s" in listed
    assert not any(name.startswith("mqtt-") for name in listed)
    api.close()


def test_rights_that_are_taken_back_end_what_waits(http: httpx.Client, gateway: Gateway, stream: str) -> None:
    api = Api(gateway)
    user = f"u-{stream}"
    rights = {"configure": "", "write": "", "read": f"^{stream}$"}
    api.send("PUT", f"users/{user}", {"password": "pw", "tags": ""})
    api.send("PUT", f"permissions/%2F/{user}", rights)
    one = Subscription(http, stream, "s", kind="exclusive")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            httpx.post,
            str(http.base_url) + f"{one.path}/pull",
            auth=(user, "pw"),
            json={"consumer": "c", "wait_ms": 60_000},
            timeout=90,
        )
        until(lambda: one.show()["consumers"] == 1)
        api.send("PUT", f"permissions/%2F/{user}", {**rights, "read": "^$"})
        assert waiting.result().status_code == 403
    until(lambda: one.show()["consumers"] == 0)
    api.close()


def events(http: httpx.Client, path: str, count: int, last: str = "") -> list[dict[str, Any]]:
    """The next events of a tail; `ready` events are published by whoever calls."""
    found: list[dict[str, Any]] = []
    headers = {"last-event-id": last} if last else {}
    with http.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if line.startswith("data: "):
                found.append(json.loads(line[6:]))
            if len(found) == count:
                break
    return found


def test_a_tail_goes_on_behind_the_last_event(http: httpx.Client, stream: str) -> None:
    path = f"exchanges/amq.topic/tail?pattern={stream}.%23"
    sent = f"exchanges/amq.topic/messages?routing_key={stream}.a"
    ids = [http.post(sent, json={"value": str(n)}).json()["results"][0]["id"] for n in range(5)]
    found = events(http, path, 3, last=ids[1])
    assert [(one["id"], one["value"]) for one in found] == [(ids[n], str(n)) for n in (2, 3, 4)]
    by_topic = events(http, f"tail?topic={stream}%2F%2B", 2, last=ids[2])
    assert [one["value"] for one in by_topic] == ["3", "4"]
    bad = http.get(path, headers={"last-event-id": "x"})
    assert (bad.status_code, bad.json()["code"]) == (400, "bad_field")


def test_a_tail_of_a_stream_begins_where_it_is_asked_to(http: httpx.Client, stream: str) -> None:
    publish(http, stream, *"abc")
    found = events(http, f"streams/{stream}/tail?from=first", 3)
    assert [one["value"] for one in found] == list("abc")
    after = events(http, f"streams/{stream}/tail", 2, last=found[0]["id"])
    assert [one["value"] for one in after] == ["b", "c"]
    assert http.get(f"streams/{stream}-none/tail").status_code == 404


def test_lists_come_page_by_page(http: httpx.Client, unique: str) -> None:
    names = [f"{unique}-{at}" for at in range(5)]
    for name in names:
        assert http.put(f"streams/{name}").status_code == 201

    def pages(size: int) -> list[list[str]]:
        found, token = [], ""
        while True:
            answer = http.get("streams", params={"max": size, "page_token": token}).json()
            found.append([one["name"] for one in answer["streams"] if one["name"].startswith(unique)])
            if not (token := answer.get("next_page_token", "")):
                return found

    assert [name for found in pages(2) for name in found] == names and max(map(len, pages(2))) == 2
    # A deletion between two pages hides no stream and repeats none.
    first = http.get("streams", params={"max": 1}).json()
    for one in first["streams"]:
        assert http.delete(f"streams/{one['name']}").status_code == 204
    rest = http.get("streams", params={"page_token": first["next_page_token"]}).json()
    assert {one["name"] for one in rest["streams"]} >= set(names) - {first["streams"][0]["name"]}
    assert "next_page_token" not in rest
    for at in range(3):
        http.put(f"streams/{names[4]}/subscriptions/{at}")
    listed = http.get(f"streams/{names[4]}/subscriptions?max=2").json()
    assert [one["name"] for one in listed["subscriptions"]] == ["0", "1"]
    for bad in ("max=0", "max=x", "page_token=%21", "page_token=a"):
        refused = http.get(f"streams?{bad}")
        assert (refused.status_code, refused.json()["code"]) == (400, "bad_field"), bad


def test_an_offset_that_retention_has_dropped_is_gone(http: httpx.Client, unique: str) -> None:
    path = f"streams/{unique}"
    assert http.put(path, json={"max_bytes": 100_000}).status_code == 201
    read = f"{path}/messages"
    while http.get(path).json()["first_offset"] == 0:
        publish(http, unique, *["x" * 20_000] * 10)
    gone = http.get(f"{read}?from=0")
    problem = gone.json()
    assert (gone.status_code, problem["code"]) == (410, "position_deleted")
    first = http.get(f"{read}?from={problem['earliest']}&max=1&wait_ms=60000")
    assert first.status_code in (200, 410), "more may have been dropped since"
    whole = http.get(f"{read}?from=first&max=1&wait_ms=60000").json()
    assert whole["messages"][0]["offset"] >= problem["earliest"]
    some = http.get(f"{read}?from=first&max_bytes=30000&wait_ms=60000").json()
    assert len(some["messages"]) == 2, "a second one, as the first was below the limit"


def pulled(lines: Iterator[str], count: int) -> list[dict[str, Any]]:
    """The next messages of a pull that goes on."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        if line := next(lines):
            found.append(json.loads(line))
    return found


LINES = {"accept": "application/x-ndjson"}


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_a_pull_goes_on_as_far_as_its_window_and_what_is_settled(
    gateway: Gateway, http: httpx.Client, stream: str, version: str
) -> None:
    subscription = Subscription(http, stream, "lines")
    publish(http, stream, *map(str, range(10)))
    with httpx.Client(
        base_url=http.base_url,
        auth=("guest", "guest"),
        http1=version == "1.1",
        http2=version == "2",
        timeout=90,
    ) as reader:
        body = {"max_messages": 3, "lease_ms": LONG_MS}
        with reader.stream("POST", f"{subscription.path}/pull", json=body, headers=LINES) as answer:
            assert answer.headers["content-type"] == "application/x-ndjson"
            assert answer.http_version == f"HTTP/{version}"
            lines = answer.iter_lines()
            first = pulled(lines, 3)
            assert values(first) == ["0", "1", "2"]
            assert subscription.show()["unacked"] == 3, "as many as the window has"
            assert subscription.post("ack", handles=handles(first)[:2]).status_code == 200
            assert values(pulled(lines, 2)) == ["3", "4"]
            assert subscription.post("nack", handles=handles(first)[2:]).status_code == 200
            (again,) = pulled(lines, 1)
            assert (again["value"], again["redelivered"]) == ("2", True)
            assert subscription.post("seek", to="earliest").status_code == 200
            assert values(pulled(lines, 3)) == ["0", "1", "2"], "what it held is void"
    until(lambda: subscription.show()["consumers"] == 0)


def test_pulls_that_go_on_end_with_a_word(gateway: Gateway, http: httpx.Client, stream: str) -> None:
    """When nothing came for so long, when what is pulled is deleted; one at a time for a named consumer."""
    subscription = Subscription(http, stream, "named", kind="failover")
    publish(http, stream, "a", "b")
    body = {"consumer": "c", "lease_ms": 1000, "max_messages": 1, "wait_ms": 60_000}
    with http.stream("POST", f"{subscription.path}/pull", json=body, headers=LINES) as answer:
        lines = answer.iter_lines()
        assert values(pulled(lines, 1)) == ["a"]
        busy = httpx.post(
            f"{http.base_url}{subscription.path}/pull", json=body, auth=("guest", "guest"), timeout=90
        )
        assert (busy.status_code, busy.json()["code"]) == (409, "subscription_busy")
        (again,) = pulled(lines, 1)
        assert again["redelivered"], "its lease ended, and that made room"
        assert (
            httpx.delete(
                f"{http.base_url}{subscription.path}", auth=("guest", "guest"), timeout=LIMIT_S
            ).status_code
            == 204
        )
        (end,) = [one for one in map(json.loads, filter(None, lines)) if "end" in one]
        assert end["end"]
    idle = {"wait_ms": 1}
    other = Subscription(http, stream, "idle", start="latest")
    answer = http.post(f"{other.path}/pull", json=idle, headers=LINES)
    assert json.loads(answer.text) == {"end": "nothing came for 0.001 s"}
    api = Api(gateway)
    api.status("PUT", f"queues/%2F/{stream}-q", {"durable": True})
    queued = {"messages": [{"value": str(at)} for at in range(3)]}
    assert http.post(f"queues/{stream}-q/messages", json=queued).status_code == 200
    answer = http.post(f"queues/{stream}-q/pull", json={"wait_ms": 1, "max_messages": 2}, headers=LINES)
    *messages, _ = [json.loads(line) for line in answer.iter_lines() if line]
    assert values(messages) == ["0", "1"]
    api.close()


def test_a_read_without_waiting_includes_records_on_disk(tmp_path: Path, unique: str) -> None:
    """A read that does not wait still gets what must be read from the disk first: after a restart, all."""
    with Gateway(tmp_path / "cold", settings=SERVED) as gateway:
        make_queue(gateway, unique)
        sent = [f"{n} " + "x" * 2000 for n in range(300)]
        with open_client(gateway) as http:
            assert http.put(f"streams/s-{unique}").status_code == 201
            for at in range(0, len(sent), 20):
                publish(http, f"s-{unique}", *sent[at : at + 20])
                body = {"messages": [{"value": value} for value in sent[at : at + 20]]}
                assert http.post(f"queues/{unique}/messages", json=body).status_code == 200
        gateway.restart()
        with open_client(gateway) as http:
            read: list[str] = []
            following, end = 0, len(sent)
            while following < end:
                page = http.get(
                    f"streams/s-{unique}/messages", params={"from": following, "max": 1000}
                ).json()
                assert page["messages"], f"an empty page at {following}, and there are {end}"
                read += values(page["messages"])
                following = page["next"]
            assert read == sent
            pulled_now: list[str] = []
            while len(pulled_now) < len(sent):
                messages = pull(http, unique, max_messages=1000, wait_ms=0, lease_ms=LONG_MS)
                assert messages, f"nothing after {len(pulled_now)}"
                pulled_now += values(messages)
            assert pulled_now == sent
            assert pull(http, unique, wait_ms=0) == []
