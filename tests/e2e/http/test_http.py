"""Publishing, pulling and tailing over HTTP, with messages crossing from and to AMQP clients."""

from __future__ import annotations

import json
import queue as queue_module
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import paho.mqtt.client as paho
import pytest

from tests.support.brokers import Gateway
from tests.support.data_plane import SERVED, consume, pull, until
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own data plane")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("http"), settings=SERVED) as running:
        yield running


def test_json_messages_reach_an_amqp_consumer_with_their_properties(
    http: httpx.Client, gateway: Gateway, queue: str
) -> None:
    answer = http.post(
        f"queues/{queue}/messages",
        json={
            "messages": [
                {"value": "héllo", "message_id": "m1", "headers": {"a": 1}, "priority": 3, "ttl_ms": 60000},
                {"value": {"order": 7}},
                {"value_b64": "/wA=", "content_type": "x/y", "persistent": False},
            ]
        },
    )
    assert answer.status_code == 200
    ids = [result["id"] for result in answer.json()["results"]]
    assert len(set(ids)) == 3
    first, second, third = consume(gateway, queue, 3)
    assert first[1].decode() == "héllo"
    assert (first[0].message_id, first[0].headers, first[0].priority) == ("m1", {"a": 1}, 3)
    assert (first[0].expiration, first[0].delivery_mode) == ("60000", 2)
    assert (second[1], second[0].content_type) == (b'{"order":7}', "application/json")
    assert (third[1], third[0].content_type, third[0].delivery_mode) == (b"\xff\0", "x/y", 1)


def test_lines_and_raw_bodies_are_messages(http: httpx.Client, gateway: Gateway, queue: str) -> None:
    lines = b'{"value": "1"}\n\n{"value": "2"}\n'
    answer = http.post(
        f"queues/{queue}/messages", content=lines, headers={"content-type": "application/x-ndjson"}
    )
    assert len(answer.json()["results"]) == 2
    raw = http.post(
        f"queues/{queue}/messages?ack=none",
        content=b"\xfe",
        headers={"content-type": "x/raw", "penstock-message-id": "r", "penstock-header-shop": "north"},
    )
    assert raw.status_code == 202
    *_, (properties, body) = consume(gateway, queue, 3)
    assert (body, properties.content_type, properties.message_id) == (b"\xfe", "x/raw", "r")
    assert properties.headers == {"shop": "north"}


EVENT = {"specversion": "1.0", "id": "e-1", "source": "/till", "type": "sale", "time": "2026-01-02T03:04:05Z"}


def test_messages_of_all_kinds_keep_their_order_in_a_batch(
    http: httpx.Client, gateway: Gateway, queue: str
) -> None:
    """Plain ones, which are appended without a look at each, and others between them."""
    items: list[dict[str, Any]] = [{"value": str(at)} for at in range(1200)]
    items[3]["message_id"] = "three"
    items[700]["key"] = "k"
    answer = http.post(f"queues/{queue}/messages", json={"messages": items})
    assert answer.status_code == 200
    positions = [int(one["id"].partition(":")[2]) for one in answer.json()["results"]]
    assert positions == sorted(set(positions))
    taken = [one for _ in range(3) for one in pull(http, queue, max_messages=400, max_bytes=1 << 24)]
    assert [one["value"] for one in taken] == [str(at) for at in range(1200)]
    assert taken[3]["message_id"] == "three" and taken[700]["key"] == "k"


def test_a_message_to_a_topic_is_one_of_mqtt(http: httpx.Client, gateway: Gateway, unique: str) -> None:
    """A topic with dots, properties, and the retained message, as MQTT clients get them."""
    got: queue_module.Queue[Any] = queue_module.Queue()
    topic = f"{unique}/a.b"

    def subscriber(topic_filter: str) -> paho.Client:
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        client.on_message = lambda *event: got.put(event[2])
        client.on_subscribe = lambda *_: got.put("subscribed")
        client.on_connect = lambda *_: client.subscribe(topic_filter, qos=2)
        client.connect("127.0.0.1", gateway.mqtt_port)
        client.loop_start()
        assert got.get(timeout=60) == "subscribed"
        return client

    first = subscriber(f"{unique}/+")
    body = {"value": {"t": 20}, "headers": {"unit": "C"}, "correlation_id": "c", "ttl_ms": 600_000}
    path = f"mqtt/messages?topic={unique}/a.b"
    assert http.post(f"{path}&qos=2&retain=true", json=body).status_code == 200
    message = got.get(timeout=60)
    assert (message.topic, message.payload, message.qos) == (topic, b'{"t":20}', 2)
    assert ("unit", "C") in message.properties.UserProperty
    assert message.properties.ContentType == "application/json"
    assert message.properties.CorrelationData == b"c"
    late = subscriber(topic)
    message = got.get(timeout=60)
    assert message.retain and message.payload == b'{"t":20}'
    assert http.post(f"{path}&retain=true", content=b"", headers={"content-type": "a/b"}).status_code == 200
    assert [got.get(timeout=60).payload for _ in range(2)] == [b"", b""], "both are told of its end"
    for client in (first, late):
        client.loop_stop()
        client.disconnect()
    third = subscriber(topic)
    assert http.post(path, json={"value": "new"}).status_code == 200
    assert got.get(timeout=60).payload == b"new", "nothing is retained any more"
    third.loop_stop()
    third.disconnect()
    nowhere = http.post(f"mqtt/messages?topic=none/{unique}&mandatory=true", json={"value": "x"})
    assert (nowhere.status_code, nowhere.json()["code"]) == (422, "unroutable")
    for query, status in (("", 400), ("?topic=a/%23", 400), ("?topic=a&qos=3", 400), ("?topic=$SYS/a", 403)):
        assert http.post(f"mqtt/messages{query}", json={"value": "x"}).status_code == status, query


def test_plain_messages_are_refused_one_by_one(http: httpx.Client, gateway: Gateway, unique: str) -> None:
    with_room = {"durable": True, "arguments": {"x-max-length": 2, "x-overflow": "reject-publish"}}
    api = Api(gateway)
    assert api.status("PUT", f"queues/%2F/{unique}", with_room) == 201
    items = [{"value": str(at)} for at in range(4)]
    answer = http.post(f"queues/{unique}/messages", json={"messages": items})
    assert answer.status_code == 207
    assert ["id" in one for one in answer.json()["results"]] == [True, True, False, False]
    lost = http.post(f"queues/no-{unique}/messages?mandatory=true", json={"messages": items})
    assert (lost.status_code, lost.json()["code"]) == (422, "unroutable")
    api.close()


def test_publishers_are_refused_under_a_memory_alarm_and_consumers_go_on(
    http: httpx.Client, gateway: Gateway, queue: str
) -> None:
    api = Api(gateway)
    node = f"nodes/{api.get('overview')['node']}/memory-high-watermark"
    publish = {"properties": {}, "routing_key": queue, "payload": "x", "payload_encoding": "string"}
    body = {"messages": [{"value": "1"}, {"value": "2"}]}
    assert http.post(f"queues/{queue}/messages", json=body).status_code == 200
    passed = threading.Event()

    def slow() -> Iterator[bytes]:
        """A body that began before the alarm, and ends in it."""
        yield b'{"value": '
        assert passed.wait(90)
        yield b'"3"}'

    late: list[httpx.Response] = []

    def post_slowly() -> None:
        headers = {"content-type": "application/json"}
        with httpx.Client(base_url=http.base_url, auth=http.auth, timeout=90) as client:
            late.append(client.post(f"queues/{queue}/messages", content=slow(), headers=headers))

    thread = threading.Thread(target=post_slowly)
    thread.start()
    try:
        assert api.status("PUT", node, {"fraction": 1e-7}) == 200
        until(lambda: api.status("GET", "health/checks/alarms") == 503)
        refused = http.post(f"queues/{queue}/messages", json=body)
        assert (refused.status_code, refused.json()["code"]) == (503, "paused")
        assert int(refused.headers["retry-after"]) * 1000 == refused.json()["retry_after_ms"]
        assert refused.json()["retryable"]
        asked = api.send("POST", "exchanges/%2F/amq.default/publish", publish)
        assert asked.status_code == 503 and int(asked.headers["retry-after"]) > 0
        passed.set()
        thread.join(90)
        assert [one.status_code for one in late] == [503]
        taken = pull(http, queue)
        assert [one["value"] for one in taken] == ["1", "2"], "nothing of what was refused"
        handles = {"handles": [one["handle"] for one in taken]}
        assert http.post(f"queues/{queue}/ack", json=handles).status_code == 200
    finally:
        passed.set()
        thread.join(90)
        assert api.status("PUT", node, {"bytes": 1 << 40}) == 200
    until(lambda: http.post(f"queues/{queue}/messages", json=body).status_code == 200)
    assert api.send("POST", "exchanges/%2F/amq.default/publish", publish).json() == {"routed": True}
    api.close()


def test_requests_sent_without_waiting_are_answered_in_order(gateway: Gateway, queue: str) -> None:
    count, body = 100, b'{"value": "x"}'
    head = (
        f"POST /v1/vhosts/%2F/queues/{queue}/messages HTTP/1.1\r\nhost: x\r\n"
        "authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    got = b""
    with socket.create_connection(("127.0.0.1", gateway.ports["http"]), timeout=60) as connection:
        connection.sendall((head.encode() + body) * count)
        while got.count(b'{"results":[{"id":"0:') < count:
            got += connection.recv(65536)
    positions = [int(part.partition(b'"')[0]) for part in got.split(b'"id":"0:')[1:]]
    assert positions == sorted(set(positions)) and len(positions) == count


def test_cloudevents_in_every_mode_are_the_same_message(
    http: httpx.Client, gateway: Gateway, queue: str
) -> None:
    path = f"queues/{queue}/messages"
    structured = {**EVENT, "datacontenttype": "application/json", "data": {"n": 1}}
    kind = "application/cloudevents"
    binary = {**{f"ce-{name}": value for name, value in EVENT.items()}, "content-type": "application/json"}
    for content, headers in (
        (json.dumps(structured), {"content-type": f"{kind}+json"}),
        (json.dumps([structured]), {"content-type": f"{kind}-batch+json"}),
        ('{"n":1}', binary),
    ):
        assert http.post(path, content=content, headers=headers).status_code == 200
    got = consume(gateway, queue, 3)
    assert {body for _, body in got} == {b'{"n":1}'}
    for properties, _ in got:
        assert (properties.message_id, properties.type, properties.timestamp) == ("e-1", "sale", 1767323045)
        assert properties.headers["cloudEvents:source"] == "/till"
        assert properties.content_type == "application/json"
    missing = http.post(path, content="{}", headers={"content-type": f"{kind}+json"})
    assert (missing.status_code, missing.json()["code"]) == (400, "bad_field")


def test_a_publish_through_an_exchange_is_routed(http: httpx.Client, gateway: Gateway, queue: str) -> None:
    api = Api(gateway)
    api.send("POST", f"bindings/%2F/e/amq.topic/q/{queue}", {"routing_key": f"{queue}.#"})
    api.close()
    body = {"messages": [{"value": "in", "routing_key": f"{queue}.a"}, {"value": "out"}]}
    answer = http.post("exchanges/amq.topic/messages?mandatory=true", json=body)
    assert answer.status_code == 207
    kept, refused = answer.json()["results"]
    assert "id" in kept and refused["error"]["code"] == "unroutable"
    alone = http.post("exchanges/amq.topic/messages?mandatory=true", json={"value": "out"})
    assert (alone.status_code, alone.headers["content-type"]) == (422, "application/problem+json")
    assert consume(gateway, queue, 1)[0][1] == b"in"
    nowhere = http.post("exchanges/nowhere/messages", json={"value": ""})
    assert (nowhere.status_code, nowhere.json()["code"]) == (404, "not_found")


def test_a_pulled_message_is_leased_until_it_is_acknowledged(http: httpx.Client, queue: str) -> None:
    http.post(f"queues/{queue}/messages", json={"messages": [{"value": str(n)} for n in range(5)]})
    messages = pull(http, queue, max_messages=3, lease_ms=600_000)
    assert [m["value"] for m in messages] == ["0", "1", "2"]
    assert pull(http, queue, max_messages=10, wait_ms=0)[0]["value"] == "3"
    handles = [m["handle"] for m in messages]
    assert http.post(f"queues/{queue}/ack", json={"handles": handles[:1]}).status_code == 200
    assert http.post(f"queues/{queue}/nack", json={"handles": handles[1:2]}).status_code == 200
    (again,) = pull(http, queue, max_messages=1)
    assert (again["value"], again["redelivered"], again["deliveries"]) == ("1", True, 2)
    mixed = http.post(f"queues/{queue}/ack", json={"handles": [handles[0], again["handle"]]})
    assert mixed.status_code == 207
    assert [r.get("error", {}).get("code") for r in mixed.json()["results"]] == ["stale_handle", None]
    stale = http.post(f"queues/{queue}/ack", json={"handles": handles[:1]})
    assert (stale.status_code, stale.json()["code"]) == (409, "stale_handle")


def test_dead_letters_go_back_to_where_they_died(
    http: httpx.Client, gateway: Gateway, queue: str, unique: str
) -> None:
    """Those that were rejected, with what they had; what is no dead letter stays."""
    api = Api(gateway)
    dead = f"{queue}-dead"
    for name, to in ((dead, None), (f"{queue}-a", dead), (f"{queue}-b", dead)):
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": to} if to else {}
        assert api.status("PUT", f"queues/%2F/{name}", {"durable": True, "arguments": arguments}) == 201
    for name in ("a", "b"):
        sent = {"value": name, "headers": {"shop": "north"}, "message_id": name}
        http.post(f"queues/{queue}-{name}/messages", json=sent)
        (one,) = pull(http, f"{queue}-{name}")
        nack = {"handles": [one["handle"]], "dead_letter": True}
        assert http.post(f"queues/{queue}-{name}/nack", json=nack).status_code == 200
    http.post(f"queues/{dead}/messages", json={"value": "alive"})
    until(lambda: api.get(f"queues/%2F/{dead}")["messages_ready"] == 3)
    path = f"queues/{dead}/redrive"
    assert http.post(path, json={"reason": "expired"}).json() == {"messages": [], "left": 3}
    dry = http.post(path, json={"dry_run": True}).json()
    assert ([one["to"] for one in dry["messages"]], dry["left"]) == ([f"{queue}-a", f"{queue}-b"], 3)
    # Only what is named moves, though others are before it; a name of what is gone moves nothing.
    (first, second) = (one["id"] for one in dry["messages"])
    named = {"ids": [second], "dry_run": True}
    assert http.post(path, json=named).json() == {"messages": dry["messages"][1:], "left": 3}
    assert http.post(path, json={"ids": [first, "0:999999"]}).json() == {
        "messages": dry["messages"][:1], "left": 2,
    }  # fmt: skip
    assert http.post(path, json={"ids": [first]}).json() == {"messages": [], "left": 2}
    (back,) = pull(http, f"{queue}-a")
    assert (back["value"], back["message_id"], back["headers"]) == ("a", "a", {"shop": "north"})
    assert http.delete(f"streams/{queue}-b").json()["code"] == "wrong_mode"
    assert api.status("DELETE", f"queues/%2F/{queue}-b") == 204
    lost = http.post(path)
    assert (lost.status_code, lost.json()["code"]) == (422, "unroutable"), "nothing is lost on the way"
    assert http.post(path, json={"to": queue, "reason": "rejected"}).json()["left"] == 1
    assert [one["value"] for one in pull(http, queue)] == ["b"]
    # It was looked at five times, and nothing is left of that.
    assert [(one["value"], one["deliveries"], one["redelivered"]) for one in pull(http, dead)] == [
        ("alive", 1, False)
    ]
    for bad in (
        {"max": 0},
        {"reason": "x"},
        {"to": 1},
        {"limit": 1},
        {"ids": []},
        {"ids": ["x"]},
        {"ids": "0:1"},
    ):
        assert http.post(path, json=bad).json()["code"] == "bad_field"
    api.close()


def test_a_lease_that_ends_gives_the_message_back_and_one_that_is_extended_does_not(
    http: httpx.Client, queue: str
) -> None:
    http.post(f"queues/{queue}/messages", json={"messages": [{"value": "kept"}, {"value": "lost"}]})
    for _ in range(100):
        kept, lost = pull(http, queue, max_messages=2, lease_ms=1000, wait_ms=60000)
        longer = {"handles": [kept["handle"]], "lease_ms": 600_000}
        answer = http.post(f"queues/{queue}/extend", json=longer)
        if answer.status_code == 200:
            break
        # On a machine this slow the leases have ended: once more.
        assert answer.json()["code"] == "stale_handle"
    (again,) = pull(http, queue, wait_ms=60000)
    assert (again["value"], again["redelivered"]) == ("lost", True)
    assert http.post(f"queues/{queue}/ack", json={"handles": [lost["handle"]]}).status_code == 409
    assert http.post(f"queues/{queue}/ack", json={"handles": [kept["handle"]]}).status_code == 200


def test_a_poll_waits_for_a_message_and_no_longer(http: httpx.Client, gateway: Gateway, queue: str) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(pull(http, queue, wait_ms=60000)))
    thread.start()
    api = Api(gateway)
    until(lambda: api.get(f"queues/%2F/{queue}")["consumers"])
    api.send(
        "POST",
        "exchanges/%2F/amq.default/publish",
        {"routing_key": queue, "payload": "now", "payload_encoding": "string", "properties": {}},
    )
    thread.join(60)
    assert [m["value"] for m in found] == ["now"]
    assert api.get(f"queues/%2F/{queue}")["consumers"] == 0
    assert pull(http, queue, wait_ms=0) == []
    api.close()


def test_a_client_that_hangs_up_leaves_nothing_behind(gateway: Gateway, queue: str) -> None:
    api = Api(gateway)

    def consumers(count: int) -> bool:
        return bool(api.get(f"queues/%2F/{queue}")["consumers"] == count)

    head = (
        f"POST /v1/vhosts/%2F/queues/{queue}/pull HTTP/1.1\r\nhost: x\r\ncontent-length: 17\r\n"
        "authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", gateway.ports["http"]), 60) as client:
        client.sendall(head.encode() + b'{"wait_ms":60000}')
        until(lambda: consumers(1))
    until(lambda: consumers(0))
    api.close()


def test_a_tail_shows_what_passes_an_exchange(http: httpx.Client, gateway: Gateway, unique: str) -> None:
    events: list[str] = []
    with http.stream("GET", f"exchanges/amq.topic/tail?pattern={unique}.%23") as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        lines = answer.iter_lines()
        assert next(lines) == ": penstock"
        with httpx.Client(auth=("guest", "guest"), timeout=LIMIT_S) as other:
            path = f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/exchanges/amq.topic/messages"
            for n in range(3):
                other.post(path, json={"value": n, "routing_key": f"{unique}.{n}"})
        for line in lines:
            if line.startswith("data: "):
                events.append(json.loads(line[6:])["value"])
            if len(events) == 3:
                break
    assert events == ["0", "1", "2"]


def test_a_stream_is_read_from_any_offset_and_leaves_no_trace(
    http: httpx.Client, gateway: Gateway, unique: str
) -> None:
    api = Api(gateway)
    api.send("PUT", f"queues/%2F/{unique}", {"durable": True, "arguments": {"x-queue-type": "stream"}})
    lines = "\n".join(json.dumps({"value": str(n)}) for n in range(10))
    kind = {"content-type": "application/x-ndjson"}
    http.post(f"queues/{unique}/messages", content=lines, headers=kind)

    def read(query: str) -> Any:
        answer = http.get(f"streams/{unique}/messages?{query}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    first = read("from=first&max=4&wait_ms=10000")
    assert [(m["offset"], m["value"]) for m in first["messages"]] == [(n, str(n)) for n in range(4)]
    assert (first["next"], first["next_offset"]) == (4, 10)
    assert [m["value"] for m in read("from=4&wait_ms=10000")["messages"]] == list("456789")
    assert [m["value"] for m in read("from=-1h&max=1&wait_ms=10000")["messages"]] == ["0"]
    assert read("from=next") == {"messages": [], "next": 10, "first_offset": 0, "next_offset": 10}
    assert api.get(f"queues/%2F/{unique}")["consumers"] == 0
    assert http.get(f"streams/{unique}/messages?from=tomorrow").json()["code"] == "bad_field"
    api.send("PUT", f"queues/%2F/{unique}-q", {"durable": True})
    assert http.get(f"streams/{unique}-q/messages").json()["code"] == "wrong_mode"
    assert http.post(f"queues/{unique}/pull", json={}).json()["code"] == "wrong_mode"
    api.close()


def test_a_stop_of_the_gateway_answers_those_who_wait(tmp_path: Path) -> None:
    """Neither a poll nor a tail holds the stop up until its drain timeout."""
    settings = {**SETTINGS, "http.listen": "127.0.0.1:0", "server.drain_timeout_s": "600"}
    with Gateway(tmp_path / "stopped", settings=settings) as gateway:
        api = Api(gateway)
        api.send("PUT", "queues/%2F/waited", {"durable": True})
        base = f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/"
        found: list[Any] = []

        def poll() -> None:
            with httpx.Client(auth=("guest", "guest"), timeout=60) as client:
                found.append(client.post(base + "queues/waited/pull", json={"wait_ms": 60000}).json())

        def tail() -> None:
            with (
                httpx.Client(auth=("guest", "guest"), timeout=60) as client,
                client.stream("GET", base + "exchanges/amq.fanout/tail") as answer,
            ):
                lines = list(answer.iter_lines())
                found.append(lines[0])

        threads = [threading.Thread(target=poll), threading.Thread(target=tail)]
        for thread in threads:
            thread.start()
        until(lambda: sum(queue["consumers"] for queue in api.get("queues")) == 2)
        api.close()
        gateway.terminate()  # fails when it takes long
        for thread in threads:
            thread.join(60)
    assert sorted(map(str, found)) == [": penstock", "{'messages': []}"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "not_json"),
        (b'{"messages": 1}', "bad_field"),
        (b'{"messages": [{}]}', "bad_field"),
        (b'{"value": "x", "valeu": 1}', "bad_field"),
        (b'{"value_b64": "%"}', "bad_field"),
        (b'{"value": "x", "ttl_ms": -1}', "bad_field"),
        (b'{"value": "x", "headers": [1]}', "bad_request"),
    ],
)
def test_a_bad_body_is_refused_with_the_place(http: httpx.Client, queue: str, body: bytes, code: str) -> None:
    answer = http.post(f"queues/{queue}/messages", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (400, code), answer.text
    page = httpx.get(f"http://127.0.0.1:{http.base_url.port}{answer.json()['type']}", timeout=60)
    assert page.status_code == 200 and page.text.startswith(code), "its type leads to what it means"
    assert pull(http, queue, wait_ms=0) == []


def test_rights_are_those_of_the_other_protocols(http: httpx.Client, gateway: Gateway, queue: str) -> None:
    api = Api(gateway)
    api.send("PUT", "users/writer", {"password": "pw", "tags": ""})
    rights = {"configure": "^$", "write": "^amq.default$", "read": "^none$"}
    api.send("PUT", "permissions/%2F/writer", rights)
    api.close()
    auth = ("writer", "pw")
    path = f"queues/{queue}/messages"
    assert http.post(path, json={"value": "x"}, auth=auth).status_code == 200
    refused = http.post(f"queues/{queue}/pull", json={}, auth=auth)
    assert (refused.status_code, refused.json()["code"]) == (403, "access_refused")
    assert http.post("exchanges/amq.topic/messages", json={"value": "x"}, auth=auth).status_code == 403
    assert http.get("exchanges/amq.topic/tail", auth=auth).status_code == 403
    other = str(http.base_url).replace("%2F/", "other/") + path
    assert http.post(other, json={"value": "x"}, auth=auth).status_code == 403
    anonymous = httpx.post(str(http.base_url) + path, json={"value": "x"}, timeout=LIMIT_S)
    assert (anonymous.status_code, anonymous.headers["www-authenticate"]) == (401, 'Basic realm="penstock"')


def test_a_transaction_publishes_and_acknowledges_or_does_nothing(
    http: httpx.Client, queue: str, unique: str
) -> None:
    http.post(f"queues/{queue}/messages", json={"messages": [{"value": "in1"}, {"value": "in2"}]})
    one, two = pull(http, queue, lease_ms=600_000)
    body = {
        "publish": [
            {"queue": queue, "value": "out1"},
            {"exchange": "", "routing_key": queue, "value": "out2", "message_id": "m"},
        ],
        "ack": [{"queue": queue, "handles": [one["handle"]]}],
    }
    stale = {**body, "ack": [{"queue": queue, "handles": [two["handle"], "stale"]}]}
    assert http.post("transactions", json=stale).json()["code"] == "stale_handle"
    nowhere = {**body, "publish": [*body["publish"], {"exchange": f"{unique}.none", "value": "x"}]}
    assert http.post("transactions", json=nowhere).status_code == 404
    assert pull(http, queue, wait_ms=0) == []
    key = {"idempotency-key": unique + http.headers.get("x", "") + str(http.base_url)}
    done = http.post("transactions", json=body, headers=key)
    assert done.status_code == 200 and len(done.json()["results"]) == 2 and not done.json()["duplicate"]
    assert http.post("transactions", json=body, headers=key).json() == {**done.json(), "duplicate": True}
    assert [message["value"] for message in pull(http, queue)] == ["out1", "out2"]
    assert http.post(f"queues/{queue}/ack", json={"handles": [one["handle"]]}).status_code == 409
    assert http.post(f"queues/{queue}/ack", json={"handles": [two["handle"]]}).status_code == 200
    for bad in ({"publish": 1}, {"ack": [{}]}, {"publish": [{"value": "x"}]}, {"other": 1}, []):
        assert http.post("transactions", json=bad).status_code == 400


def test_a_token_logs_in_until_it_is_revoked(http: httpx.Client, gateway: Gateway, queue: str) -> None:
    base = f"http://127.0.0.1:{gateway.ports['http']}/v1/tokens"
    made = http.post(base, json={"name": "ci", "ttl_s": 3600})
    assert made.status_code == 201
    token = made.json()["token"]
    bearer = {"authorization": f"Bearer {token}"}
    with httpx.Client(headers=bearer, timeout=90) as client:
        path = str(http.base_url) + f"queues/{queue}/messages"
        assert client.post(path, json={"value": "x"}).status_code == 200
        whoami = f"http://127.0.0.1:{gateway.ports['management']}/api/whoami"
        assert client.get(whoami).json()["name"] == "guest"
        assert client.post(base, json={"name": "more"}).status_code == 403, "a token makes no tokens"
        assert [one["name"] for one in client.get(base).json()["tokens"]] == ["ci"]
        assert token not in client.get(base).text
        assert http.delete(f"{base}/ci").status_code == 204
        assert client.post(path, json={"value": "x"}).status_code == 401
    assert http.delete(f"{base}/ci").status_code == 404
    assert http.post(base, json={"name": ""}).status_code == 400


def test_the_answer_tells_whether_a_message_was_routed(
    http: httpx.Client, gateway: Gateway, unique: str
) -> None:
    """A queue or stream that is named must be there; through an exchange, `routed` tells."""
    api = Api(gateway)
    remedies = tuple(f"PUT /v1/vhosts/%2F/{kind}/{unique}" for kind in ("queues", "streams"))
    refused = [
        http.post(f"queues/{unique}/messages", json={"value": "a"}),
        http.post(f"queues/{unique}/messages", json={"value": "a", "message_id": "looked at"}),
        http.post(f"queues/{unique}/messages", json={"value": "a", "delay_ms": 60_000}),
        http.post(f"queues/{unique}/messages", json={"value": "a"}, headers={"idempotency-key": unique}),
        http.post(f"queues/{unique}/messages?ack=none", content=b"a"),
        http.post(f"streams/{unique}/messages", json={"value": "a"}),
        http.post("transactions", json={"publish": [{"queue": unique, "value": "a"}]}),
        http.post("half", json={"queue": unique, "message": {"value": "a"}}),
    ]
    for answer in refused:
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), answer.text
        assert f"'{unique}'" in answer.json()["detail"] and answer.json()["remedy"].endswith(remedies)

    def routed(path: str, *items: dict[str, Any], **headers: str) -> list[object]:
        answer = http.post(path, json={"messages": items}, headers=headers)
        assert answer.status_code == 200, answer.text
        return [result.get("routed", "not said") for result in answer.json()["results"]]

    plain, seen, later = {"value": "a"}, {"value": "a", "priority": 1}, {"value": "a", "delay_ms": 60_000}
    through = f"exchanges/amq.topic/messages?routing_key={unique}"
    assert routed(through, plain, seen, later) == [False, False, "not said"]
    assert routed(through, plain, seen, **{"idempotency-key": f"{unique}-x"}) == [False, False]
    assert routed(through, plain, seen, **{"idempotency-key": f"{unique}-x"}) == [False, False], "again"
    assert http.post(f"{through}&mandatory=true", json=plain).json()["code"] == "unroutable"
    assert routed(f"mqtt/messages?topic={unique}", plain) == [False]

    assert http.put(f"queues/{unique}").status_code == 201
    binding = {"routing_key": unique}
    assert api.status("POST", f"bindings/%2F/e/amq.topic/q/{unique}", binding) == 201
    assert routed(through, plain, seen, later) == [True, True, "not said"]
    assert routed(through, plain, **{"idempotency-key": f"{unique}-y"}) == [True]
    assert routed(f"mqtt/messages?topic={unique}", plain) == [True]
    assert routed(f"queues/{unique}/messages", plain, seen) == [True, True]
    sent = {"exchange": "amq.topic", "value": "a"}
    done = http.post("transactions", json={"publish": [{**sent, "routing_key": unique}, sent]}).json()
    assert [result["routed"] for result in done["results"]] == [True, False]
    api.close()


def test_queues_are_resources(http: httpx.Client, gateway: Gateway, unique: str) -> None:
    path = f"queues/{unique}"
    made = http.put(path, json={"arguments": {"x-max-length": 2}})
    assert made.status_code == 201, made.text
    empty = {"ready": 0, "unacked": 0, "consumers": 0}
    shape = {"name": unique, "durable": True, "auto_delete": False, "arguments": {"x-max-length": 2}}
    assert made.json() == {**shape, **empty}
    assert http.put(path, json={"arguments": {"x-max-length": 2}}).status_code == 200, "the same again"
    assert http.put(path).json()["code"] == "inequivalent"
    http.post(f"{path}/messages", json={"messages": [{"value": str(at)} for at in range(3)]})
    until(lambda: http.get(path).json()["ready"] == 2)
    assert [one["value"] for one in pull(http, unique)] == ["1", "2"]
    assert http.get(path).json()["unacked"] == 2
    assert unique in [one["name"] for one in http.get("queues").json()["queues"]]
    stream = f"{unique}-s"
    assert http.put(f"streams/{stream}").status_code == 201
    assert stream not in [one["name"] for one in http.get("queues").json()["queues"]]
    for wrong in (http.get(f"queues/{stream}"), http.delete(f"queues/{stream}")):
        assert (wrong.status_code, wrong.json()["code"]) == (409, "wrong_mode")
    for body in (
        {"durable": 1},
        {"arguments": []},
        {"arguments": {"x-queue-type": "stream"}},
        {"durabel": True},
    ):
        assert http.put(f"queues/{unique}-no", json=body).json()["code"] == "bad_field", body
    assert http.delete(path).status_code == 204
    assert (http.get(path).status_code, http.delete(path).status_code) == (404, 204), "as over AMQP"
