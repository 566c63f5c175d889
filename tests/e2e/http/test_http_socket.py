"""Publishing, consuming and tails over a WebSocket, with an ordinary client of the protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pika
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.support.brokers import Gateway
from tests.support.data_plane import SERVED
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own data plane")

BASIC = {"authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("socket"), settings=SERVED) as running:
        yield running


class Socket:
    """A client; `ask` sends, `next` is what comes."""

    def __init__(self, gateway: Gateway, **headers: str) -> None:
        self.connection: ClientConnection = connect(
            f"ws://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/ws",
            additional_headers={**BASIC, **headers},
            subprotocols=["penstock.v1.json"],  # type: ignore[list-item]
            open_timeout=60,
            close_timeout=60,
        )

    def send(self, do: str, **fields: Any) -> None:
        self.connection.send(json.dumps({"do": do, **fields}))

    def next(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.connection.recv(timeout=60))
        return value

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        self.send(do, **fields)
        return self.next()

    def messages(self, count: int) -> list[dict[str, Any]]:
        found = [self.next() for _ in range(count)]
        assert {one["type"] for one in found} == {"message"}, found
        return found


@pytest.fixture
def socket(gateway: Gateway) -> Iterator[Socket]:
    socket = Socket(gateway)
    yield socket
    socket.connection.close()


@pytest.fixture
def queue(gateway: Gateway, unique: str) -> str:
    """A durable queue."""
    api = Api(gateway)
    assert api.status("PUT", f"queues/%2F/{unique}", {"durable": True}) == 201
    api.close()
    return unique


def values(found: list[dict[str, Any]]) -> list[str]:
    return [one["message"]["value"] for one in found]


def test_messages_are_published_consumed_and_acknowledged(
    socket: Socket, gateway: Gateway, queue: str
) -> None:
    assert socket.connection.subprotocol == "penstock.v1.json"
    told = socket.ask("publish", ref="r1", queue=queue, messages=[{"value": str(n)} for n in range(5)])
    assert (told["type"], told["ref"]) == ("published", "r1") and len(told["results"]) == 5
    assert socket.ask("subscribe", id=1, queue=queue, credit=2) == {"type": "subscribed", "id": 1}
    first = socket.messages(2)
    assert values(first) == ["0", "1"]
    socket.send("ack", id=1, tags=[first[0]["tag"]])
    socket.send("nack", id=1, tags=[first[1]["tag"]])
    socket.send("credit", id=1, messages=10)
    rest = socket.messages(4)
    assert values(rest) == ["1", "2", "3", "4"]
    assert rest[0]["message"]["redelivered"] and not rest[1]["message"]["redelivered"]
    stale = socket.ask("ack", id=1, tags=[first[0]["tag"]])
    assert (stale["type"], stale["code"]) == ("error", "stale_handle")
    socket.send("ack", id=1, tags=[one["tag"] for one in rest[:2]])
    assert socket.ask("unsubscribe", id=1) == {"type": "unsubscribed", "id": 1}
    api = Api(gateway)
    assert api.get(f"queues/%2F/{queue}")["messages"] == 2, "what was not acknowledged goes back"
    api.close()


def test_unsettled_messages_of_a_lost_client_are_requeued(gateway: Gateway, queue: str) -> None:
    one, other = Socket(gateway), Socket(gateway)
    one.ask("publish", queue=queue, messages=[{"value": "x"}])
    one.ask("subscribe", id="a", queue=queue)
    one.messages(1)
    other.ask("subscribe", id="b", queue=queue)
    one.connection.close()
    (again,) = other.messages(1)
    assert again["message"]["redelivered"]
    other.connection.close()


def test_tails_of_exchanges_topics_and_streams(socket: Socket, gateway: Gateway, unique: str) -> None:
    api = Api(gateway)
    api.send("PUT", f"queues/%2F/{unique}", {"durable": True, "arguments": {"x-queue-type": "stream"}})
    api.close()
    socket.ask("subscribe", id="x", exchange="amq.topic", pattern=f"{unique}.*")
    socket.ask("subscribe", id="t", topic=f"{unique}/#")
    socket.ask("subscribe", id="s", stream=unique, **{"from": "first"})
    socket.send("publish", exchange="amq.topic", messages=[{"value": "1", "routing_key": f"{unique}.a"}])
    found = [socket.next() for _ in range(3)]
    assert sorted(one.get("id", "") for one in found) == ["", "t", "x"]
    (published,) = [one for one in found if one["type"] == "published"]
    socket.send("publish", stream=unique, messages=[{"value": "2", "key": "k"}])
    found = [socket.next() for _ in range(2)]
    (message,) = [one["message"] for one in found if one["type"] == "message"]
    assert (message["value"], message["key"]) == ("2", "k")
    socket.send("publish", exchange="amq.topic", messages=[{"value": "3", "routing_key": f"{unique}.a"}])
    [socket.next() for _ in range(3)]
    after = published["results"][0]["id"]
    socket.ask("subscribe", id="again", exchange="amq.topic", pattern=f"{unique}.*", after=after)
    (message,) = socket.messages(1)
    assert (message["id"], message["message"]["value"]) == ("again", "3")


def test_subscriptions_of_streams_and_keys(socket: Socket, gateway: Gateway, unique: str) -> None:
    base = f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/streams/{unique}"
    with httpx.Client(auth=("guest", "guest"), timeout=60) as http:
        http.put(base)
        http.put(f"{base}/subscriptions/k", json={"kind": "key_shared", "start": "earliest"})
        for name in ("a", "b"):
            socket.ask("subscribe", id=name, stream=unique, subscription="k", consumer=name, credit=1000)
        messages = [{"value": str(n), "key": f"k{n % 20}"} for n in range(100)]
        socket.send("publish", stream=unique, messages=messages)
        holders: dict[str, set[str]] = {}
        count = 0
        while count < 100:
            one = socket.next()
            if one["type"] == "message":
                count += 1
                holders.setdefault(one["message"]["key"], set()).add(one["id"])
                socket.send("ack", id=one["id"], tags=[one["tag"]])
        assert all(len(names) == 1 for names in holders.values())
        assert {name for names in holders.values() for name in names} == {"a", "b"}
        socket.send("unsubscribe", id="b")
        while socket.next()["type"] != "unsubscribed":
            pass
        assert http.post(f"{base}/subscriptions/k/seek", json={"to": "earliest"}).status_code == 200
        while socket.next()["type"] != "void":
            pass
        assert len(socket.messages(100)) == 100


def test_mistakes_are_answered_and_end_nothing(socket: Socket, queue: str) -> None:
    for text, code in (
        ("{", "not_json"),
        ("[]", "malformed"),
        ('{"do": "dance", "ref": 7}', "bad_field"),
        ('{"do": "subscribe", "queue": "q"}', "bad_field"),
        ('{"do": "subscribe", "id": 1, "queue": "none-such"}', "not_found"),
        ('{"do": "ack", "id": 1, "tags": [1]}', "not_found"),
        ('{"do": "publish", "queue": "none-such", "messages": [{"value": "x"}]}', "unroutable"),
        ('{"do": "publish", "queue": 1, "messages": []}', "bad_field"),
        ('{"do": "subscribe", "id": 1, "exchange": "amq.topic", "after": "x"}', "bad_field"),
    ):
        socket.connection.send(text)
        told = socket.next()
        assert (told["type"], told["code"]) == ("error", code), (text, told)
    assert socket.ask("subscribe", id=1, queue=queue)["type"] == "subscribed"
    assert socket.ask("subscribe", id=1, queue=queue)["code"] == "subscription_busy"


def test_log_lines_are_events(gateway: Gateway, socket: Socket) -> None:
    assert socket.ask("subscribe", id=2, events="all")["code"] == "bad_field"
    assert socket.ask("subscribe", id=1, events="log")["type"] == "subscribed"
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)):
        told = socket.next()
    assert (told["type"], told["id"], told["about"]) == ("event", 1, "log")
    assert {"time", "level", "logger", "message"} <= told["event"].keys()


def test_bytes_and_too_much_text_end_the_connection(gateway: Gateway) -> None:
    for sent, code in ((b"\x00", 1003), ("x" * (1 << 20) + "x", 1009)):
        socket = Socket(gateway)
        with pytest.raises(ConnectionClosed) as closed:
            socket.connection.send(sent)
            socket.next()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == code


def test_only_pages_of_the_gateway_itself_may_connect(gateway: Gateway) -> None:
    own = Socket(gateway, origin=f"http://127.0.0.1:{gateway.ports['http']}")
    own.connection.close()
    with pytest.raises(InvalidStatus) as refused:
        Socket(gateway, origin="https://example.org")
    assert refused.value.response.status_code == 403
    with pytest.raises(InvalidStatus) as refused:
        Socket(gateway, authorization="Basic eDp5")
    assert refused.value.response.status_code == 401
    plain = httpx.get(
        f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/ws", auth=("guest", "guest"), timeout=60
    )
    assert plain.status_code == 426


def test_rights_that_are_taken_back_end_subscriptions_only(gateway: Gateway, queue: str, unique: str) -> None:
    api = Api(gateway)
    rights = {"configure": "", "write": ".*", "read": ".*"}
    api.send("PUT", f"users/u-{unique}", {"password": "pw", "tags": ""})
    api.send("PUT", f"permissions/%2F/u-{unique}", rights)
    basic = httpx.BasicAuth(f"u-{unique}", "pw")._auth_header
    socket = Socket(gateway, authorization=basic)
    socket.ask("subscribe", id=1, queue=queue)
    socket.ask("subscribe", id=2, exchange="amq.topic")
    api.send("PUT", f"permissions/%2F/u-{unique}", {**rights, "read": "^amq"})
    told = socket.next()
    assert (told["type"], told["id"]) == ("ended", 1)
    published = socket.ask("publish", queue=queue, messages=[{"value": "x"}])
    assert published["type"] == "published"
    socket.connection.close()
    api.close()


def test_a_stop_of_the_gateway_says_goodbye(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = {**SERVED, "server.drain_timeout_s": "600"}
    with Gateway(tmp_path_factory.mktemp("stopped"), settings=settings) as gateway:
        socket = Socket(gateway)
        socket.ask("subscribe", id=1, exchange="amq.topic")
        gateway.terminate()
        with pytest.raises(ConnectionClosed) as closed:
            socket.next()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1001
