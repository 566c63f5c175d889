"""Queues in the management API: declaring, listing, sorting, their consumers."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.brokers import Gateway
from tests.support.data_plane import until
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own API")


def test_queues_are_declared_shown_and_deleted_with_rabbitmqs_statuses(api: Api) -> None:
    path = "queues/%2F/made"
    assert api.status("PUT", path, {"durable": True, "arguments": {"x-max-length": 5}}) == 201
    assert api.status("PUT", path, {"durable": True, "arguments": {"x-max-length": 5}}) == 204
    other = api.send("PUT", path, {"durable": False})
    assert (other.status_code, other.json()) == (
        400,
        {
            "error": "bad_request",
            "reason": "inequivalent arg 'durable' for queue 'made' in vhost '/': received 'false' but "
            "current is 'true'",
        },
    )
    assert api.get(path)["arguments"] == {"x-max-length": 5}
    assert api.status("DELETE", path) == 204
    gone = api.send("GET", path)
    assert (gone.status_code, gone.json()) == (404, {"error": "Object Not Found", "reason": "Not Found"})
    assert api.status("DELETE", path) == 404
    bad = api.client.put(path, content=b"{bad")
    assert (bad.status_code, bad.json()) == (400, {"error": "bad_request", "reason": "not_json"})
    assert api.send("PUT", "queues/none/q", {}).json() == {"error": "not_found", "reason": "vhost_not_found"}
    negative = api.send("PUT", path, {"arguments": {"x-max-length": -1}}).json()["reason"]
    assert negative == "invalid arg 'x-max-length' for queue 'made' in vhost '/': {value_negative,-1}"


def test_a_queue_at_rest_runs(api: Api) -> None:
    """RabbitMQ 4 has no more `idle_since`, by which its page would call the queue idle."""
    for kind in ("classic", "quorum", "stream"):
        path = f"queues/%2F/rests-{kind}"
        assert api.status("PUT", path, {"durable": True, "arguments": {"x-queue-type": kind}}) == 201
        shown = api.get(path)
        assert shown["state"] == "running" and "idle_since" not in shown


def test_lists_are_filtered_sorted_paged_and_reduced(api: Api) -> None:
    for n in range(7):
        api.send("PUT", f"queues/%2F/page-{n}", {"durable": n % 2 == 0})
    page = api.get("queues?page=2&page_size=3&name=%5Epage-&use_regex=true&pagination=false")
    assert {
        key: page[key] for key in ("filtered_count", "item_count", "page", "page_count", "page_size")
    } == {
        "filtered_count": 7,
        "item_count": 3,
        "page": 2,
        "page_count": 3,
        "page_size": 3,
    }
    assert [q["name"] for q in page["items"]] == ["page-3", "page-4", "page-5"]
    named = api.get("queues/%2F?name=PAGE-&sort=durable&sort_reverse=true&columns=name,message_stats.publish")
    assert named[0] == {"name": "page-0", "message_stats": {"publish": 0}}
    assert api.send("GET", "queues?page=9").json()["error"] == "page_out_of_range"
    for wrong in ("page=0", "page=1&page_size=501", "page=x"):
        assert api.send("GET", f"queues?{wrong}").json()["error"] == "invalid_pagination_parameters"
    assert api.status("GET", "queues?name=%5B&use_regex=true") == 400
    assert isinstance(api.get("queues?sort="), list)


def test_queues_are_sorted_by_each_column_as_the_whole_rows_would_be(api: Api, channel: Any) -> None:
    for number, count in enumerate((3, 0, 7, 3)):
        channel.queue_declare(f"sorted-{number}", durable=number % 2 == 0)
        for _ in range(count):
            channel.basic_publish("", f"sorted-{number}", b"x")
    channel.basic_consume("sorted-2", lambda *_: None, auto_ack=False)
    channel.queue_declare("sorted-4", durable=True, arguments={"x-queue-type": "quorum"})
    until(lambda: api.get("queues/%2F/sorted-2")["messages_unacknowledged"] == 7)
    columns = (
        "messages",
        "messages_ready",
        "messages_unacknowledged",
        "consumers",
        "durable",
        "type",
        "state",
    )
    for column in (*columns, "auto_delete", "messages_dropped", "message_stats.publish", "message_stats.ack"):
        for reverse in ("false", "true"):
            asked = api.get(f"queues/%2F?name=sorted-&page=1&sort={column}&sort_reverse={reverse}")
            plain = api.get("queues/%2F?name=sorted-")

            def value(item: dict[str, Any], column: str = column) -> Any:
                for part in column.split("."):
                    item = item[part]
                return item

            wanted = [one["name"] for one in sorted(plain, key=value, reverse=reverse == "true")]
            assert [one["name"] for one in asked["items"]] == wanted, column
    for column in ("messages_details.rate", "message_stats.publish_details.rate"):
        asked = api.get(f"queues/%2F?name=sorted-&page=1&sort={column}")
        assert len(asked["items"]) == 5


def test_the_one_active_consumer_of_a_queue_is_shown_as_such(api: Api, channel: Any) -> None:
    channel.queue_declare("one-active", arguments={"x-single-active-consumer": True})
    channel.queue_declare("all-active")
    for queue, tag in (("one-active", "first"), ("one-active", "second"), ("all-active", "third")):
        channel.basic_consume(queue, lambda *_: None, consumer_tag=tag)
    shown = {c["consumer_tag"]: c["activity_status"] for c in api.get("consumers/%2F")}
    assert shown.items() >= {"first": "single_active", "second": "waiting", "third": "up"}.items()
    for queue in ("one-active", "all-active"):
        channel.queue_delete(queue)


def test_rows_tell_how_long_the_oldest_message_has_waited(gateway: Gateway, api: Api, unique: str) -> None:
    for name, type_ in ((unique, "quorum"), (f"{unique}-empty", "quorum"), (f"{unique}-stream", "stream")):
        body = {"durable": True, "arguments": {"x-queue-type": type_}}
        assert api.status("PUT", f"queues/%2F/{name}", body) == 201

    def publish(name: str) -> int:
        message = {"routing_key": name, "payload": "x", "payload_encoding": "string"}
        body = {**message, "properties": {"delivery_mode": 2}}
        assert api.status("POST", "exchanges/%2F/amq.default/publish", body) == 200
        return int(time.time() * 1000)

    def age(row: dict[str, Any]) -> int | None:
        at = row["head_published_ms"]
        return None if at is None else int(time.time() * 1000) - at

    def ages() -> list[int | None]:
        listed = api.get(f"queues?page=1&name={unique}")["items"]
        return [age(one) for one in listed]

    before = int(time.time() * 1000)
    published = publish(unique)
    publish(f"{unique}-stream")
    until(lambda: ages()[0] is not None)

    def check() -> None:
        for found in (ages()[0], age(api.get(f"queues/%2F/{unique}"))):
            now = int(time.time() * 1000)
            assert found is not None and -2 <= found <= now - before + 2

    check()
    assert ages()[1:] == [None, None], "an empty queue and a stream"
    until(lambda: int(time.time() * 1000) > published + 50)
    publish(unique)
    assert (ages()[0] or 0) >= 50, "the oldest one counts"
    # After a restart the message is no longer in memory: the first answer does not wait for it.
    gateway.terminate()
    gateway.start()
    api = Api(gateway)  # at another port
    until(lambda: ages()[0] is not None)
    check()
    assert (ages()[0] or 0) >= 50
    got = {"count": 2, "ackmode": "ack_requeue_false", "encoding": "auto"}
    assert len(api.send("POST", f"queues/%2F/{unique}/get", got).json()) == 2
    assert ages() == [None] * 3
    api.close()
