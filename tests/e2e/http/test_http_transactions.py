"""Transactions over HTTP that take several requests, and producers that number what they send."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import paho.mqtt.client as paho
import pika
import pytest

from tests.support.brokers import Gateway
from tests.support.data_plane import SERVED, make_queue, open_client
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own data plane")

LONG_MS = 600_000


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("units"), settings=SERVED) as running:
        yield running


@pytest.fixture
def http(gateway: Gateway) -> Iterator[httpx.Client]:
    with open_client(gateway) as made:
        yield made


def begin(http: httpx.Client, **body: Any) -> str:
    answer = http.post("transactions", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def stage(http: httpx.Client, txn: str, path: str, *values: str) -> list[int]:
    body = {"messages": [{"value": value} for value in values]}
    answer = http.post(f"{path}?txn={txn}", json=body)
    assert answer.status_code == 202, answer.text
    return [one["staged"] for one in answer.json()["results"]]


def pull(http: httpx.Client, queue: str, **body: Any) -> list[dict[str, Any]]:
    answer = http.post(f"queues/{queue}/pull", json={"lease_ms": LONG_MS, "max_messages": 100, **body})
    assert answer.status_code == 200, answer.text
    messages: list[dict[str, Any]] = answer.json()["messages"]
    return messages


def refusal(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


def test_staged_messages_are_invisible_until_the_commit(
    http: httpx.Client, gateway: Gateway, queue: str
) -> None:
    """Messages to a queue, a stream and a topic; deliveries of a queue and of a subscription."""
    http.put(f"streams/{queue}-s")
    http.put(f"streams/{queue}-s/subscriptions/n", json={"start": "earliest", "kind": "failover"})
    http.post(f"queues/{queue}/messages", json={"messages": [{"value": "in"}, {"value": "kept"}]})
    http.post(f"streams/{queue}-s/messages", json={"messages": [{"value": "1"}, {"value": "2"}]})
    done, _ = pull(http, queue)
    base = f"streams/{queue}-s/subscriptions/n"
    both = http.post(f"{base}/pull", json={"consumer": "c", "lease_ms": LONG_MS, "wait_ms": 60_000}).json()
    txn = begin(http)
    assert stage(http, txn, f"queues/{queue}/messages", "a", "b") == [0, 1]
    assert stage(http, txn, f"streams/{queue}-s/messages", "c") == [2]
    topic = f"mqtt/messages?topic={queue}/t&retain=true&txn={txn}"
    assert http.post(topic, json={"value": "d"}).json() == {"results": [{"staged": 3}]}
    last = both["messages"][-1]["handle"]
    assert http.post(f"{base}/ack-cumulative?txn={txn}", json={"handle": last}).status_code == 200
    acked = http.post(f"queues/{queue}/ack?txn={txn}", json={"handles": [done["handle"], "none"]})
    assert acked.status_code == 207
    shown = http.get(f"transactions/{txn}").json()
    assert (shown["messages"], shown["bytes"]) == (4, 4) and 0 < shown["left_ms"] <= 60_000
    assert pull(http, queue, wait_ms=0) == [], "read committed"
    assert len(http.get(f"streams/{queue}-s/messages").json()["messages"]) == 2
    assert http.get(base).json()["unacked"] == 2

    committed = http.post(f"transactions/{txn}/commit")
    assert committed.status_code == 200, committed.text
    ids = [one["id"] for one in committed.json()["results"]]
    assert len(ids) == 4 and committed.json()["duplicate"] is False
    assert [(one["value"], one["id"]) for one in pull(http, queue)] == [("a", ids[0]), ("b", ids[1])]
    read = http.get(f"streams/{queue}-s/messages").json()["messages"]
    assert [one["value"] for one in read] == list("12c")
    assert http.get(base).json()["unacked"] == 0
    again = http.post(f"transactions/{txn}/commit").json()
    assert ([one["id"] for one in again["results"]], again["duplicate"]) == (ids, True)
    assert retained(gateway, f"{queue}/t") == b"d"
    assert refusal(http.post(f"transactions/{txn}/rollback")) == (410, "transaction_gone")


def retained(gateway: Gateway, topic: str) -> bytes:
    """The retained message of a topic, as an MQTT client gets it."""
    got: list[bytes] = []
    listener = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    listener.on_message = lambda *event: got.append(event[2].payload)
    listener.on_connect = lambda *_: listener.subscribe(topic)  # which answers with what is retained
    listener.username_pw_set("guest", "guest")
    listener.connect("127.0.0.1", gateway.mqtt_port)
    while not got:
        assert listener.loop(60) == paho.MQTT_ERR_SUCCESS
    listener.disconnect()
    return got[0]


def test_a_rollback_and_a_timeout_leave_no_trace(http: httpx.Client, queue: str) -> None:
    http.post(f"queues/{queue}/messages", json={"value": "in"})
    (one,) = pull(http, queue)
    txn = begin(http)
    stage(http, txn, f"queues/{queue}/messages", "never")
    assert http.post(f"queues/{queue}/nack?txn={txn}", json={"handles": [one["handle"]]}).status_code == 200
    assert http.post(f"transactions/{txn}/rollback").json() == {}
    assert refusal(http.post(f"transactions/{txn}/commit")) == (410, "transaction_gone")
    assert pull(http, queue, wait_ms=0) == [], "it is leased as before, and nothing was published"
    assert http.post(f"queues/{queue}/nack", json={"handles": [one["handle"]]}).status_code == 200
    (one,) = pull(http, queue, lease_ms=1000)
    late = begin(http, timeout_ms=1000)
    answer = http.post(f"queues/{queue}/ack?txn={late}", json={"handles": [one["handle"]]})
    # On a slow machine the transaction, or the lease, is over by now; in any case nothing comes of it.
    assert answer.status_code in (200, 409, 410)
    (again,) = pull(http, queue, wait_ms=60_000)
    assert again["redelivered"]
    assert refusal(http.post(f"transactions/{late}/commit")) == (410, "transaction_gone")
    assert refusal(http.get(f"transactions/{late}")) == (410, "transaction_gone")


def test_a_staged_delivery_stays_leased_as_long_as_its_transaction(http: httpx.Client, queue: str) -> None:
    http.post(f"queues/{queue}/messages", json={"messages": [{"value": "held"}, {"value": "free"}]})
    for _ in range(100):
        got = {one["value"]: one["handle"] for one in pull(http, queue, lease_ms=1000, wait_ms=60_000)}
        txn = begin(http, timeout_ms=LONG_MS)
        staged = http.post(f"queues/{queue}/ack?txn={txn}", json={"handles": [got.get("held", "")]})
        if staged.status_code == 200:
            break
        # On a machine this slow the leases have ended: once more.
        assert staged.json()["code"] == "stale_handle"
    (again,) = pull(http, queue, wait_ms=60_000)
    assert (again["value"], again["redelivered"]) == ("free", True)
    assert http.post(f"transactions/{txn}/commit").status_code == 200
    assert refusal(http.post(f"queues/{queue}/ack", json={"handles": [got["held"]]}))[1] == "stale_handle"


def test_a_commit_that_cannot_be_does_nothing_and_stays_open(
    http: httpx.Client, gateway: Gateway, queue: str, unique: str
) -> None:
    make_queue(gateway, f"{unique}-full", **{"x-max-length": 2, "x-overflow": "reject-publish"})
    http.post(f"queues/{queue}/messages", json={"value": "in"})
    (one,) = pull(http, queue)
    txn = begin(http)
    stage(http, txn, f"queues/{queue}/messages", "x")
    stage(http, txn, f"queues/{unique}-full/messages", "1", "2", "3")  # it has room for each, not for all
    http.post(f"queues/{queue}/ack?txn={txn}", json={"handles": [one["handle"]]})
    assert refusal(http.post(f"transactions/{txn}/commit")) == (422, "queue_full")
    assert pull(http, queue, wait_ms=0) == pull(http, f"{unique}-full", wait_ms=0) == []
    api = Api(gateway)
    assert api.status("DELETE", f"queues/%2F/{unique}-full") == 204
    make_queue(gateway, f"{unique}-full")
    api.close()
    assert http.post(f"transactions/{txn}/commit").status_code == 200
    assert [m["value"] for m in pull(http, f"{unique}-full")] == ["1", "2", "3"]
    (x,) = pull(http, queue)
    # The same without staging; and a handle that was settled otherwise refuses a commit for good.
    at_once = {"publish": [{"queue": queue, "value": "y"}, {"queue": queue, "value": "z", "priority": 999}]}
    assert refusal(http.post("transactions", json=at_once))[0] == 400
    txn = begin(http)
    stage(http, txn, f"queues/{queue}/messages", "y")
    http.post(f"queues/{queue}/ack?txn={txn}", json={"handles": [x["handle"]]})
    assert http.post(f"queues/{queue}/ack", json={"handles": [x["handle"]]}).status_code == 200
    assert refusal(http.post(f"transactions/{txn}/commit")) == (409, "stale_handle")
    assert pull(http, queue, wait_ms=0) == []


def test_an_impossible_operation_is_refused_when_it_is_staged(
    http: httpx.Client, gateway: Gateway, queue: str
) -> None:
    txn = begin(http)
    path = f"queues/{queue}/messages?txn={txn}"
    assert refusal(http.post(f"exchanges/no/messages?txn={txn}", json={"value": ""})) == (
        404,
        "not_found",
    )
    assert refusal(http.post(path, json={"value": "", "priority": 999}))[0] == 400
    assert refusal(http.post(f"{path}&ack=none", json={"value": ""})) == (400, "bad_field")
    for headers in ({"idempotency-key": "k"}, {"penstock-producer": "p", "penstock-epoch": "1"}):
        assert refusal(http.post(path, json={"value": ""}, headers=headers)) == (400, "bad_field")
    unroutable = http.post(f"exchanges/amq.topic/messages?mandatory=true&txn={txn}", json={"value": ""})
    assert refusal(unroutable) == (422, "unroutable")
    many = {"messages": [{"value": ""}] * 5001}
    assert http.post(path, json=many).status_code == 202
    assert refusal(http.post(path, json=many)) == (413, "transaction_too_large")
    other = begin(http)
    big = {"value": "x" * (9 << 20)}
    assert http.post(f"queues/{queue}/messages?txn={other}", json=big).status_code == 202
    assert refusal(http.post(f"queues/{queue}/messages?txn={other}", json=big))[1] == "transaction_too_large"
    for bad in ({"timeout_ms": 1}, {"timeout_ms": 900_001}, {"timeout": 1}, {"ack": [], "timeout_ms": 1000}):
        assert refusal(http.post("transactions", json=bad)) == (400, "bad_field")
    api = Api(gateway)
    api.send("PUT", "users/ann", {"password": "ann", "tags": ""})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    api.send("PUT", "permissions/%2F/ann", everything)
    with open_client(gateway, "ann") as ann:
        assert refusal(ann.post(f"transactions/{txn}/commit")) == (410, "transaction_gone")
        hers = begin(ann)
        stage(ann, hers, f"queues/{queue}/messages", "hers")
        api.send("PUT", "permissions/%2F/ann", {**everything, "write": ""})
        assert refusal(ann.post(f"transactions/{hers}/commit")) == (403, "access_refused")
    api.close()
    assert http.post(f"transactions/{txn}/commit").status_code == 200, "it is still there"
    assert len(pull(http, queue, max_messages=1000, max_bytes=1 << 24)) == 1000


def test_after_a_kill_what_happened_once_is_known_and_what_was_open_is_gone(tmp_path: Path) -> None:
    settings = {**SETTINGS, "http.listen": "127.0.0.1:0"}
    numbered = {"messages": [{"value": "1"}, {"value": "2"}]}
    with Gateway(tmp_path / "killed", settings=settings) as gateway:
        make_queue(gateway, "q")
        make_queue(gateway, "numbered")
        with open_client(gateway) as http:
            http.post("queues/q/messages", json={"messages": [{"value": "a"}, {"value": "b"}]})
            a, b = pull(http, "q")
            done, lost = begin(http), begin(http)
            for txn, one in ((done, a), (lost, b)):
                stage(http, txn, "queues/q/messages", f"after {one['value']}")
                http.post(f"queues/q/ack?txn={txn}", json={"handles": [one["handle"]]})
            results = http.post(f"transactions/{done}/commit").json()["results"]
            epoch = http.post("producers", json={"name": "p"}).json()["epoch"]
            headers = {"penstock-producer": "p", "penstock-epoch": str(epoch), "penstock-sequence": "0"}
            sent = http.post("queues/numbered/messages", json=numbered, headers=headers).json()["results"]
        gateway.kill9()
        gateway.restart()
        with open_client(gateway) as http:
            again = http.post(f"transactions/{done}/commit").json()
            assert again == {"results": results, "duplicate": True}
            assert refusal(http.post(f"transactions/{lost}/commit")) == (410, "transaction_gone")
            assert [one["value"] for one in pull(http, "q")] == ["b", "after a"]
            resent = http.post("queues/numbered/messages", json=numbered, headers=headers).json()["results"]
            assert resent == [{**one, "duplicate": True} for one in sent]
            assert [one["id"] for one in pull(http, "numbered")] == [one["id"] for one in sent]


def test_producers_number_messages_and_are_fenced(http: httpx.Client, gateway: Gateway, queue: str) -> None:
    path = f"queues/{queue}/messages"
    begun = http.post("producers", json={"name": f"till {queue}"})
    assert begun.status_code == 201 and begun.json()["next_sequence"] == 0
    epoch = begun.json()["epoch"]

    def send(number: int, *values: str, of: int = epoch, **more: Any) -> httpx.Response:
        headers = {
            "penstock-producer": f"till {queue}",
            "penstock-epoch": str(of),
            "penstock-sequence": str(number),
            **more,
        }
        return http.post(path, json={"messages": [{"value": value} for value in values]}, headers=headers)

    first = send(0, "a", "b").json()["results"]
    again = send(0, "a", "b").json()["results"]
    assert again == [{**one, "duplicate": True} for one in first]
    assert refusal(send(5, "f")) == (409, "out_of_order_sequence")
    assert "the next is 2" in send(5, "f").json()["detail"]
    assert refusal(send(2, "c", "d", of=epoch + 1)) == (409, "unknown_producer")
    assert send(2, "c", "d").status_code == 200
    assert send(1, "b", "c").json()["results"] == [{"duplicate": True}] * 2, "another cut of what was sent"
    api = Api(gateway)
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        channel = connection.channel()
        got = [channel.basic_get(queue, auto_ack=True)[2] for _ in range(5)]
    assert got == [b"a", b"b", b"c", b"d", None]
    # A request that is refused uses no number.
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    make_queue(gateway, f"{queue}-full", **full)
    path = f"queues/{queue}-full/messages"
    assert refusal(send(4, "e", "f")) == (422, "queue_full")
    assert send(4, "e").status_code == 200
    newer = http.post("producers", json={"name": f"till {queue}"}).json()["epoch"]
    assert newer == epoch + 1
    assert refusal(send(5, "f")) == (409, "fenced")
    path = f"queues/{queue}/messages"
    assert send(0, "g", of=newer).status_code == 200
    assert refusal(send(0, of=newer)) == (400, "bad_field")
    assert refusal(send(1, "h", of=newer, **{"idempotency-key": "k"})) == (400, "bad_field")
    for broken in ({"penstock-sequence": "-1"}, {"penstock-epoch": "x"}, {"penstock-producer": ""}):
        assert refusal(send(1, "h", of=newer, **broken)) == (400, "bad_field")
    alone = http.post(path, json={"value": ""}, headers={"penstock-sequence": "1"})
    assert refusal(alone) == (400, "bad_field")
    assert len(http.post("producers").json()["name"]) == 24
    api.close()
