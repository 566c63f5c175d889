"""One message with its path: by each protocol in, to each kind of place, as its clients saw it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import paho.mqtt.client as paho
import pika
import pytest

from penstock import sync
from tests.support.brokers import Gateway
from tests.support.data_plane import open_client, until
from tests.support.hooks import LOCAL, Hooks
from tests.support.limits import LIMIT_S
from tests.support.management import Api
from tests.support.receiver import Got, Receiver, Reply

pytestmark = pytest.mark.penstock_only("other brokers keep no log")

ALL = ["publish", "deliver", "ack", "requeue", "dead_letter", "drop"]
ATTEMPTS = [(500, 1), (500, 2), (200, 3)]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {**LOCAL, "native.listen": "127.0.0.1:0"}
    with Gateway(tmp_path_factory.mktemp("path"), settings=settings) as running:
        yield running


@pytest.fixture
def recording(gateway: Gateway) -> Iterator[Api]:
    """The management API, while all that happens to messages is recorded."""
    with closing(Api(gateway)) as api:
        assert api.status("PUT", "recording", {"kinds": ALL, "for_s": 3600}) == 200
        yield api
    with closing(Api(gateway)) as api:  # it may have been started again
        assert api.status("PUT", "recording", {"kinds": [], "for_s": 0}) == 200
        assert api.get("recording") == {"kinds": [], "configured": [], "until": None}


def whole(http: httpx.Client, id: str, **query: str) -> dict[str, Any]:
    """A message with all of its path, by as many requests as it takes."""
    answer = http.get(f"log/messages/{id}", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    more = found
    while "cursor" in more:
        more = http.get(f"log/messages/{id}", params={**query, "cursor": more["cursor"]}).json()
        found["events"] += more["events"]
        found["attempts"] += more["attempts"]
    return found


def id_of(http: httpx.Client, text: str) -> str:
    """The id of the only message with this text."""
    (found,) = http.post("log/search", json={"body": {"contains": text}, "wait_ms": 30_000}).json()[
        "messages"
    ]
    id: str = found["id"]
    return id


def places(found: dict[str, Any]) -> dict[str, str]:
    return {place["name"]: place["state"] for place in found["places"]}


def steps(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(event["kind"], event["queue"], event["detail"]) for event in found["events"]]


def test_across_protocols(gateway: Gateway, recording: Api, unique: str) -> None:
    ready, dead, hooked, stream = unique, f"{unique}-dead", f"{unique}-hook", f"{unique}-stream"
    rules = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    assert recording.status("PUT", f"queues/%2F/{ready}", {"durable": True, "arguments": rules}) == 201
    for name in (dead, hooked):
        assert recording.status("PUT", f"queues/%2F/{name}", {"durable": True}) == 201
    kind = {"durable": True, "arguments": {"x-queue-type": "stream"}}
    assert recording.status("PUT", f"queues/%2F/{stream}", kind) == 201
    for name in (ready, hooked, stream):
        binding = {"routing_key": f"{unique}.#", "arguments": {}}
        assert recording.status("POST", f"bindings/%2F/e/amq.topic/q/{name}", binding) == 201
    failed: list[str] = []

    def reply(got: Got) -> Reply:
        text = got.body.decode()
        if failed.count(text) < 2:
            failed.append(text)
            return Reply(500)
        return Reply(200)

    with closing(Hooks(gateway)) as hooks, Receiver(reply) as receiver, open_client(gateway) as http:
        hooks.put(hooked, source={"queue": hooked}, url=receiver.url)
        hooks.wait(hooked, lambda shown: shown["state"] == "active")
        publish_by_all(gateway, http, unique)
        ids = {name: id_of(http, f"{unique} by {name}") for name in ("mqtt", "amqp", "http", "native")}
        consume(gateway, ready)
        for name, id in ids.items():
            until(lambda id=id: len(whole(http, id)["attempts"]) == 3)  # type: ignore[misc]
            found = whole(http, id)
            check(found, name, ready, stream)
            assert places(found)[hooked] == "done"
            assert [(one["status"], one["attempt"]) for one in found["attempts"]] == ATTEMPTS
        gateway.kill9()
        gateway.start()
    with open_client(gateway) as http:
        for name, id in ids.items():
            found = whole(http, id)
            check(found, name, ready, stream)
            # A webhook may send once more what it had sent just before the kill.
            assert [(one["status"], one["attempt"]) for one in found["attempts"]][:3] == ATTEMPTS
            assert {one["webhook"] for one in found["attempts"]} == {hooked}
        letter = id_of_letter(http, dead)
        found = whole(http, letter)
        assert places(found) == {dead: "ready"}
        assert found["message"]["headers"]["x-death"][0]["queue"] == ready
    with closing(Api(gateway)) as api:  # recording ends with the process
        assert api.get("recording")["kinds"] == []


def publish_by_all(gateway: Gateway, http: httpx.Client, unique: str) -> None:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, f"{unique}-station", protocol=paho.MQTTv5)
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.loop_start()
    client.publish(f"{unique}/mqtt", f"{unique} by mqtt", qos=1).wait_for_publish(LIMIT_S)
    client.disconnect()
    client.loop_stop()
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)
    with closing(pika.BlockingConnection(parameters)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("amq.topic", f"{unique}.amqp", f"{unique} by amqp".encode())
    answer = http.post(
        "exchanges/amq.topic/messages", json={"value": f"{unique} by http", "routing_key": f"{unique}.http"}
    )
    assert answer.json()["results"][0]["routed"]
    url = f"penstock://guest:guest@127.0.0.1:{gateway.ports['native']}"
    with (
        sync.connect(url) as native,
        native.producer(exchange="amq.topic", routing_key=f"{unique}.native") as producer,
    ):
        producer.send(f"{unique} by native")


def consume(gateway: Gateway, queue: str) -> None:
    """Give each message back once, then reject the first and acknowledge the others."""
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)
    with closing(pika.BlockingConnection(parameters)) as connection:
        channel = connection.channel()
        channel.tx_select()  # a commit is kept over a kill
        got: list[Any] = []
        channel.basic_consume(queue, lambda *words: got.append(words[1]))
        until(lambda: connection.process_data_events(0.05) or len(got) == 4)
        for method in got:
            channel.basic_nack(method.delivery_tag, requeue=True)
        channel.tx_commit()
        until(lambda: connection.process_data_events(0.05) or len(got) == 8)
        assert all(method.redelivered for method in got[4:])
        channel.basic_nack(got[4].delivery_tag, requeue=False)
        for method in got[5:]:
            channel.basic_ack(method.delivery_tag)
        channel.tx_commit()


def check(found: dict[str, Any], name: str, ready: str, stream: str) -> None:
    publisher = found["publisher"]
    assert publisher["kind"] == "publish" and publisher["detail"] == name
    assert publisher["user"] == "guest"
    assert bool(publisher["connection"]) is (name != "http")
    assert found["message"]["protocol"] == ("mqtt" if name == "mqtt" else "amqp")
    assert places(found).items() >= {ready: "done", stream: "kept"}.items()
    assert len(places(found)) == 3
    here = [event for event in found["events"] if event["queue"] == ready]
    last = ("dead_letter", "rejected") if name == "mqtt" else ("ack", "")
    assert [(event["kind"], event["detail"]) for event in here] == [
        ("deliver", ""), ("requeue", ""), ("deliver", ""), last,
    ]  # fmt: skip
    assert [event["redelivered"] for event in here if event["kind"] == "deliver"] == [False, True]
    assert all(event["connection"] for event in here if event["kind"] == "deliver")
    assert publisher["at"] <= found["events"][0]["at"]


def id_of_letter(http: httpx.Client, queue: str) -> str:
    (letter,) = http.post(f"queues/{queue}/peek", json={}).json()["messages"]
    id: str = letter["id"]
    return id


def test_without_events_cursors_tell(gateway: Gateway, unique: str) -> None:
    with closing(Api(gateway)) as api, open_client(gateway) as http:
        assert api.status("PUT", "recording", {"kinds": [], "for_s": 0}) == 200
        assert api.status("PUT", f"queues/%2F/{unique}", {"durable": True}) == 201
        answers = http.post(f"queues/{unique}/messages", json={"messages": [{"value": "a"}, {"value": "b"}]})
        first, second = (one["id"] for one in answers.json()["results"])
        assert places(whole(http, first)) == {unique: "ready"}
        pulled = http.post(f"queues/{unique}/pull", json={"max_messages": 1}).json()["messages"]
        assert places(whole(http, first)) == {unique: "out"}
        assert http.post(f"queues/{unique}/ack", json={"handles": [pulled[0]["handle"]]}).is_success
        found = whole(http, first)
        assert places(found) == {unique: "done"} and places(whole(http, second)) == {unique: "ready"}
        assert (found["publisher"], found["events"], found["recorded"]) == (None, [], [])
        assert found["message"]["value"] == "a"


def test_rights(gateway: Gateway, recording: Api, unique: str) -> None:
    assert recording.status("PUT", f"queues/%2F/{unique}", {"durable": True}) == 201
    binding = {"routing_key": unique, "arguments": {}}
    assert recording.status("POST", f"bindings/%2F/e/amq.topic/q/{unique}", binding) == 201
    with open_client(gateway) as http:
        body = {"value": "x", "routing_key": unique}
        (result,) = http.post("exchanges/amq.topic/messages", json=body).json()["results"]
    id = result["id"]
    assert recording.status("PUT", f"users/{unique}", {"password": unique, "tags": "management"}) == 201
    rights = {"configure": "", "write": "", "read": ""}
    assert recording.status("PUT", f"permissions/%2F/{unique}", rights) == 201
    with open_client(gateway, unique) as other:
        assert other.get(f"log/messages/{id}").status_code == 404
        assert recording.status("PUT", f"permissions/%2F/{unique}", {**rights, "read": f"^{unique}$"}) == 204
        assert other.get(f"log/messages/{id}").status_code == 404
        found = whole(other, id, queue=unique)
        assert found["message"]["value"] == "x" and places(found) == {unique: "ready"}
        assert "user" not in found["publisher"] and found["publisher"]["detail"] == "http"
        assert other.get(f"log/messages/{id}", params={"queue": "amq.none"}).status_code == 403
        for wrong in ("x", "1:5", "0:99999999"):
            assert other.get(f"log/messages/{wrong}").status_code in (400, 404)
    with closing(Api(gateway, unique, unique)) as api:
        assert set(api.get("recording")["kinds"]) == set(ALL)
        assert api.status("PUT", "recording", {"kinds": [], "for_s": 0}) == 401
    for wrong_body in (
        {},
        {"kinds": ["gap"], "for_s": 1},
        {"kinds": "ack", "for_s": 1},
        {"kinds": [], "for_s": -1},
    ):
        assert recording.status("PUT", "recording", wrong_body) == 400


def test_recording_ends_by_itself(gateway: Gateway) -> None:
    with closing(Api(gateway)) as api:
        assert api.status("PUT", "recording", {"kinds": ["ack"], "for_s": 1}) == 200
        until(lambda: api.get("recording") == {"kinds": [], "configured": [], "until": None})
