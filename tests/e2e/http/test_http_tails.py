"""Tails of a queue and of the default exchange: they show messages as they are routed, and take none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pika
import pytest

from tests.support.brokers import Gateway
from tests.support.data_plane import SERVED, consume, make_queue, open_client, until
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own data plane")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("tails"), settings=SERVED) as running:
        yield running


class Tail:
    """One that is open."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.iter_lines()
        assert next(self._lines) == ": penstock"

    def events(self, count: int) -> list[dict[str, Any]]:
        """The data of the next events, of whatever kind."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            line = next(self._lines)
            if line.startswith("data: "):
                found.append(json.loads(line[6:]))
        return found

    def values(self, count: int) -> list[str]:
        return [one["value"] for one in self.events(count)]

    def end(self) -> str:
        """Why it ended; everything else was taken."""
        lines = [line for line in self._lines if line and not line.startswith(":")]
        assert lines[0] == "event: end", lines
        reason: str = json.loads(lines[1].removeprefix("data: "))["reason"]
        return reason


@contextmanager
def tail(http: httpx.Client, path: str, **options: Any) -> Iterator[Tail]:
    with http.stream("GET", path, **options) as answer:
        if answer.status_code != 200:
            answer.read()
            raise AssertionError(f"{answer.status_code} {answer.text}")
        yield Tail(answer)


def send(gateway: Gateway, path: str, *values: str) -> list[str]:
    """Publish; the ids."""
    with open_client(gateway) as other:
        answer = other.post(path, json={"messages": [{"value": value} for value in values]})
        assert answer.status_code == 200, answer.text
        return [one["id"] for one in answer.json()["results"]]


def test_a_tail_of_a_queue_shows_what_is_routed_to_it_and_takes_nothing(
    gateway: Gateway, http: httpx.Client, api: Api, queue: str
) -> None:
    to_queue = f"queues/{queue}/messages"
    send(gateway, to_queue, "before")
    with tail(http, f"tail?queue={queue}") as one, open_client(gateway) as more:
        with tail(more, f"tail?queue={queue}") as other:
            send(gateway, to_queue, "1")
            # A binding that is made meanwhile brings messages to the queue, and to its tails.
            key = {"routing_key": f"{queue}.a"}
            assert api.status("POST", f"bindings/%2F/e/amq.topic/q/{queue}", key) == 201
            send(gateway, f"exchanges/amq.topic/messages?routing_key={queue}.a", "2")
            assert api.status("DELETE", f"bindings/%2F/e/amq.topic/q/{queue}/{queue}.a") == 204
            send(gateway, f"exchanges/amq.topic/messages?routing_key={queue}.a", "not routed here")
            ids = send(gateway, to_queue, "3")
            found = one.events(3)
            assert [event["value"] for event in found] == other.values(3) == ["1", "2", "3"]
            assert (found[1]["exchange"], found[1]["routing_key"]) == ("amq.topic", f"{queue}.a")
            assert found[2]["id"] == ids[0]
        shown = api.get(f"queues/%2F/{queue}")
        counted = shown["message_stats"]
        assert (shown["messages_ready"], shown["messages_unacknowledged"], shown["consumers"]) == (4, 0, 0)
        assert counted["deliver_get"] == counted["ack"] == counted["redeliver"] == 0
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
            got = [connection.channel().basic_get(queue, auto_ack=True) for _ in range(4)]
        assert [body for _, _, body in got] == [b"before", b"1", b"2", b"3"]
        assert not any(method.redelivered for method, _, _ in got)
        assert api.status("DELETE", f"queues/%2F/{queue}") == 204
        assert one.end() == "the queue was deleted"


def test_a_queue_that_never_had_a_message_is_followed_too(
    gateway: Gateway, http: httpx.Client, queue: str
) -> None:
    with tail(http, f"tail?queue={queue}") as one:
        send(gateway, f"queues/{queue}/messages", "first")
        assert one.values(1) == ["first"]


def test_a_message_that_the_queue_refuses_is_not_shown(
    gateway: Gateway, http: httpx.Client, api: Api, queue: str
) -> None:
    refuses, drops = {"max-length": 1, "overflow": "reject-publish"}, {"max-length": 5}
    to_queue = f"queues/{queue}/messages"
    with tail(http, f"tail?queue={queue}") as one, open_client(gateway) as other:
        # A queue that refuses messages has a feed of its own; with others it shares one.
        for at, limits in enumerate((drops, refuses, drops, refuses)):
            policy = {"pattern": f"^{queue}$", "definition": limits, "apply-to": "queues"}
            assert api.status("PUT", f"policies/%2F/{queue}", policy) in (201, 204)
            consume(gateway, queue, 1)
            send(gateway, to_queue, str(at))
            if limits is refuses:
                refused = other.post(to_queue, json={"value": "refused"})
                assert refused.status_code != 200 or "error" in refused.json()["results"][0]
            assert one.values(1) == [str(at)]
        consume(gateway, queue, 1)
        send(gateway, to_queue, "last")
        assert one.values(1) == ["last"]
    assert api.status("DELETE", f"policies/%2F/{queue}") == 204


def test_a_dead_letter_that_would_go_round_in_circles_is_not_shown(
    gateway: Gateway, http: httpx.Client, api: Api, unique: str
) -> None:
    assert api.status("PUT", f"exchanges/%2F/{unique}", {"type": "fanout"}) == 201
    make_queue(gateway, unique, **{"x-message-ttl": 20, "x-dead-letter-exchange": unique})
    make_queue(gateway, f"{unique}-dead")
    for queue in (unique, f"{unique}-dead"):
        assert api.status("POST", f"bindings/%2F/e/{unique}/q/{queue}", {}) == 201
    with tail(http, f"tail?queue={unique}") as one:
        send(gateway, f"queues/{unique}/messages", "expires")
        until(lambda: api.get(f"queues/%2F/{unique}-dead")["messages_ready"])
        send(gateway, f"queues/{unique}/messages", "next")
        assert one.values(2) == ["expires", "next"]
    assert api.status("DELETE", f"exchanges/%2F/{unique}") == 204


def test_a_tail_of_a_queue_begins_in_the_past_and_goes_on_behind_an_event(
    gateway: Gateway, http: httpx.Client, queue: str
) -> None:
    ids = send(gateway, f"queues/{queue}/messages", *"abc")
    assert len(consume(gateway, queue, 2)) == 2  # these are found all the same
    with tail(http, f"tail?queue={queue}&from=-1h") as one:
        assert one.values(3) == list("abc")
        send(gateway, f"queues/{queue}/messages", "d")
        assert one.values(1) == ["d"]
    with tail(http, f"tail?queue={queue}&from=pos:{ids[1].removeprefix('0:')}") as one:
        assert one.values(3) == list("bcd")
    with tail(http, f"tail?queue={queue}", headers={"last-event-id": ids[1]}) as one:
        assert one.values(2) == list("cd")
    wrong = http.get(f"tail?queue={queue}&from=tomorrow")
    assert (wrong.status_code, wrong.json()["code"]) == (400, "bad_field")


def test_a_tail_that_cannot_be_had_is_refused(
    gateway: Gateway, http: httpx.Client, api: Api, queue: str
) -> None:
    make_queue(gateway, f"{queue}-s", **{"x-queue-type": "stream"})
    user = {"password": "pw", "tags": "management"}
    assert api.status("PUT", f"users/{queue}", user) == 201
    rights = {"configure": "", "write": "", "read": "^amq.topic$"}
    assert api.status("PUT", f"permissions/%2F/{queue}", rights) == 201
    for path, auth, status, code in (
        (f"tail?queue={queue}-none", None, 404, "not_found"),
        (f"tail?queue={queue}-s", None, 409, "wrong_mode"),
        (f"tail?queue={queue}&topic=a", None, 400, "bad_field"),
        (f"tail?queue={queue}&events=log", None, 400, "bad_field"),
        ("tail", None, 400, "bad_field"),
        (f"tail?queue={queue}", (queue, "pw"), 403, "access_refused"),
        ("exchanges/amq.default/tail", (queue, "pw"), 403, "access_refused"),
    ):
        answer = http.get(path, auth=auth or ("guest", "guest"))
        assert (answer.status_code, answer.json()["code"]) == (status, code), path
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        connection.channel().queue_declare(f"{queue}-x", exclusive=True)
        locked, pulled = http.get(f"tail?queue={queue}-x"), http.post(f"queues/{queue}-x/pull", json={})
        assert locked.status_code == pulled.status_code >= 400
        assert locked.json()["code"] == pulled.json()["code"]


def test_a_tail_of_the_default_exchange_shows_only_queues_that_the_user_may_read(
    gateway: Gateway, http: httpx.Client, api: Api, queue: str
) -> None:
    make_queue(gateway, f"{queue}-secret")
    assert api.status("PUT", f"users/{queue}", {"password": "pw", "tags": "management"}) == 201
    rights = {"configure": "", "write": "", "read": rf"^(amq\.default|{queue})$"}
    assert api.status("PUT", f"permissions/%2F/{queue}", rights) == 201
    first = send(gateway, f"queues/{queue}-secret/messages", "secret")
    for options in ({}, {"headers": {"last-event-id": first[0]}}):
        with tail(http, "exchanges/amq.default/tail", auth=(queue, "pw"), **options) as one:
            send(gateway, f"queues/{queue}-secret/messages", "secret")
            send(gateway, f"queues/{queue}/messages", "open")
            assert one.values(1) == ["open"]
    assert api.status("DELETE", f"users/{queue}") == 204


@pytest.mark.parametrize("of", ["queue", "default"])
def test_a_right_that_is_taken_back_ends_a_tail(
    gateway: Gateway, http: httpx.Client, api: Api, queue: str, of: str
) -> None:
    user = f"{queue}-{of}"
    assert api.status("PUT", f"users/{user}", {"password": "pw", "tags": "management"}) == 201
    rights = {"configure": "", "write": "", "read": ".*"}
    assert api.status("PUT", f"permissions/%2F/{user}", rights) == 201
    path = f"tail?queue={queue}" if of == "queue" else "exchanges/amq.default/tail"
    with tail(http, path, auth=(user, "pw")) as one:
        assert api.status("PUT", f"permissions/%2F/{user}", {**rights, "read": "^none$"}) == 204
        reason = one.end()
        assert "refused" in reason and (queue if of == "queue" else "amq.default") in reason
    assert api.status("DELETE", f"users/{user}") == 204


def test_a_tail_of_the_default_exchange_shows_what_goes_to_queues_by_their_names(
    gateway: Gateway, http: httpx.Client, api: Api, unique: str
) -> None:
    names = [f"{unique}.a", f"{unique}.b", f"{unique}-c"]
    for name in names:
        make_queue(gateway, name)
    make_queue(gateway, f"{unique}-s", **{"x-queue-type": "stream"})
    earlier = send(gateway, f"queues/{names[0]}/messages", "earlier")
    with (
        tail(http, "exchanges/amq.default/tail") as everything,
        open_client(gateway) as second,
        tail(second, f"exchanges/amq.default/tail?pattern={unique}.*") as some,
        open_client(gateway) as third,
        tail(third, f"exchanges/amq.default/tail?pattern={unique}-c") as one,
        open_client(gateway) as other,
    ):
        # A listener makes no message routable.
        lost = {"value": "lost", "routing_key": f"{unique}.none"}
        refused = other.post("exchanges/amq.default/messages?mandatory=true", json=lost)
        assert refused.status_code != 200 or "error" in refused.json()["results"][0], refused.text
        for name in names:
            send(gateway, f"queues/{name}/messages", name)
        send(gateway, f"streams/{unique}-s/messages", "to a stream")
        send(gateway, f"exchanges/amq.topic/messages?routing_key={names[0]}", "elsewhere")
        assert everything.values(4) == [*names, "to a stream"]
        assert some.values(2) == names[:2]
        assert one.values(1) == names[2:]
        bodies = [body.decode() for name in names for _, body in consume(gateway, name, 2) if body]
        assert bodies == ["earlier", *names]
    with tail(http, f"exchanges/amq.default/tail?pattern={unique}.*&from=pos:{earlier[0][2:]}") as again:
        assert again.values(3) == ["earlier", *names[:2]]
    with tail(http, "exchanges/amq.default/tail", headers={"last-event-id": earlier[0]}) as again:
        assert again.values(2) == names[:2]
    # When nobody listens any more, nothing of it is left. A stream of HTTP/2 may outlast its tail.
    http.close()
    until(lambda: not any(one["name"].startswith("amq.gen") for one in api.get("queues")))
    send(gateway, f"queues/{names[0]}/messages", "later")
    assert [body for _, body in consume(gateway, names[0], 2)] == [b"later", None]
