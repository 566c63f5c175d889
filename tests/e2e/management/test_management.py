"""The management API as its tools see it: shapes, statuses, rights, single messages, real clients."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import paho.mqtt.client as paho
import pika
import pytest

from tests.support.brokers import Gateway
from tests.support.certificates import Authority
from tests.support.limits import LIMIT_S
from tests.support.management import GOLDEN, SETTINGS, Api, mismatches

pytestmark = pytest.mark.penstock_only("this is about penstock's own API")

SHAPES = json.loads(GOLDEN.read_text())

IGNORED = (
    # Fields that only an Erlang machine has.
    "garbage_collection",
    "reductions",
    "reductions_details",
    "backing_queue_status",
    "memory",
    "gc_num",
    "gc_num_details",
    "gc_bytes_reclaimed",
    "gc_bytes_reclaimed_details",
    "ra_open_file_metrics",
    "metrics_gc_queue_length",
    "cowboy_opts",
    "protocol?",
    "user_who_performed_action",
    # Of RabbitMQ's storage.
    *(
        f"{name}{suffix}"
        for name in (
            "mnesia_ram_tx_count",
            "mnesia_disk_tx_count",
            "msg_store_read_count",
            "msg_store_write_count",
            "queue_index_write_count",
            "queue_index_read_count",
            "io_seek_count",
            "io_seek_avg_time",
            "io_reopen_count",
            "io_read_avg_time",
            "io_write_avg_time",
            "io_sync_avg_time",
        )
        for suffix in ("", "_details")
    ),
    "messages_dlx",
    "messages_persistent",
    "messages_ram",
    "messages_paged_out",
    "messages_ready_ram",
    "messages_unacknowledged_ram",
    # Not counted here.
    *(
        f"message_bytes{suffix}"
        for suffix in ("", "_dlx", "_persistent", "_ram", "_ready", "_unacknowledged", "_paged_out")
    ),
    "exchanges.message_stats",
    "incoming",
    "deliveries",
    # Keyed by the name of the node.
    "open_files",
    "cluster_state",
    # The client's own words.
    "client_properties",
    "arguments",
    "socket_opts",
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("managed"), settings=SETTINGS) as running:
        yield running


@pytest.fixture
def channel(gateway: Gateway) -> Iterator[Any]:
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)
    with pika.BlockingConnection(parameters) as connection:
        yield connection.channel()


def until(what: Any, timeout_s: float = 60.0) -> Any:
    """Ask again until the answer is true; the last answer."""
    ends = time.monotonic() + timeout_s
    while not (answer := what()):
        assert time.monotonic() < ends, f"not in {timeout_s} s"
        threading.Event().wait(0.05)
    return answer


def test_every_answer_has_the_shape_of_rabbitmqs(api: Api, channel: Any) -> None:
    channel.exchange_declare("orders", "topic", durable=True)
    for name, arguments in (("q1", {"x-queue-type": "quorum"}), ("q2", {"x-message-ttl": 60000})):
        channel.queue_declare(name, durable=True, arguments=arguments)
        channel.queue_bind(name, "orders", "a.*" if name == "q1" else "#")
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=10)
    channel.basic_consume("q1", lambda ch, method, *_: ch.basic_ack(method.delivery_tag))
    for _ in range(20):
        channel.basic_publish("orders", "a.b", b"x" * 100, pika.BasicProperties(delivery_mode=2))
    channel.connection.process_data_events(time_limit=0)
    found = []
    for path, shape in SHAPES.items():
        if path in ("policies", "parameters", "vhost-limits", "topic-permissions"):
            assert api.get(path) == []
        else:
            found += mismatches(shape, api.get(path), path, IGNORED)
    assert found == []


def test_numbers_are_those_of_the_broker(api: Api, channel: Any) -> None:
    channel.queue_declare("counted", durable=True)
    channel.confirm_delivery()
    before = api.get("overview")["message_stats"]
    for _ in range(10):
        channel.basic_publish("", "counted", b"hello")
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", "nowhere", b"", mandatory=True)
    channel.basic_publish("", "nowhere", b"")
    for _ in range(4):
        method, _, _ = channel.basic_get("counted")
        channel.basic_ack(method.delivery_tag)
    channel.basic_get("counted")
    queue = until(lambda: (q := api.get("queues/%2F/counted"))["messages_unacknowledged"] == 1 and q)
    assert (queue["messages"], queue["messages_ready"]) == (6, 5)
    assert queue["message_stats"]["publish"] == 10
    assert queue["message_stats"]["get"] == queue["message_stats"]["deliver_get"] == 5
    assert until(lambda: api.get("queues/%2F/counted")["message_stats"]["ack"] == 4)
    name = channel.connection._impl._transport._sock.getsockname()
    (one,) = [c for c in api.get("channels") if c["connection_details"]["peer_port"] == name[1]]
    stats = one["message_stats"]
    assert (stats["publish"], stats["confirm"], stats["get"], stats["ack"]) == (12, 12, 5, 4)
    assert (stats["return_unroutable"], stats["drop_unroutable"]) == (1, 1)
    assert (one["messages_unacknowledged"], one["confirm"]) == (1, True)
    after = api.get("overview")["message_stats"]
    assert after["publish"] - before["publish"] == 12
    assert after["drop_unroutable"] - before["drop_unroutable"] == 1


def test_rates_come_from_two_samples(api: Api, channel: Any) -> None:
    channel.queue_declare("rated", durable=True)

    def rate() -> float:
        channel.basic_publish("", "rated", b"x")
        value: float = api.get("queues/%2F/rated")["message_stats"]["publish_details"]["rate"]
        return value

    assert until(rate) > 0


def test_plots_have_samples_of_what_moved(api: Api, channel: Any) -> None:
    channel.queue_declare("plotted", durable=True)
    ages = "&".join(
        f"{group}_age=60&{group}_incr=5" for group in ("msg_rates", "lengths", "data_rates", "node_stats")
    )

    def moved() -> bool:
        channel.basic_publish("", "plotted", b"m")
        shown = api.get(f"queues/%2F/plotted?{ages}")
        samples = [one["sample"] for one in shown["messages_ready_details"]["samples"]]
        return samples == sorted(samples, reverse=True) and samples[0] > samples[-1]

    until(moved)
    queue = api.get(f"queues/%2F/plotted?{ages}")
    overview = api.get(f"overview?{ages}")
    node = api.get(f"nodes/{overview['node']}?{ages}")
    vhost = api.get(f"vhosts/%2F?{ages}")
    name = quote(api.get("connections")[0]["name"], safe="")
    connection = api.get(f"connections/{name}?{ages}")
    for item in (
        queue,
        queue["message_stats"],
        overview["message_stats"],
        overview["queue_totals"],
        overview["churn_rates"],
        node,
        connection,
        api.get(f"channels/{name}%20(1)?{ages}")["message_stats"],
        vhost,
        vhost["message_stats"],
    ):
        details = {
            key: one for key, one in item.items() if key.endswith("_details") and isinstance(one, dict)
        }
        for key, one in details.items():
            assert one.keys() == {"rate", "samples", "avg", "avg_rate"}, key
            assert one["samples"] and one["samples"][0].keys() == {"sample", "timestamp"}
    assert overview["queue_totals"]["messages_details"]["avg_rate"] > 0
    assert overview["message_stats"]["publish_details"]["samples"][0]["sample"] > 0
    assert connection["recv_oct_details"]["avg_rate"] > 0
    assert vhost["message_stats"]["publish_details"]["avg_rate"] > 0
    assert vhost["recv_oct_details"]["avg_rate"] > 0
    assert "samples" not in api.get("overview")["message_stats"]["publish_details"]
    assert api.status("GET", "overview?lengths_age=x&lengths_incr=5") == 400
    channel.queue_delete("plotted")


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


def test_exchanges_and_bindings(api: Api) -> None:
    assert api.status("PUT", "exchanges/%2F/ex", {"type": "topic", "durable": True}) == 201
    assert api.status("PUT", "exchanges/%2F/ex", {"type": "topic", "durable": True}) == 204
    assert api.status("PUT", "exchanges/%2F/ex", {"type": "direct", "durable": True}) == 400
    unknown = api.send("PUT", "exchanges/%2F/ex2", {"type": "nope"}).json()["reason"]
    assert unknown.startswith("unknown exchange type 'nope'")
    predeclared = api.send("DELETE", "exchanges/%2F/amq.topic")
    assert (predeclared.status_code, predeclared.json()) == (
        401,
        {"error": "not_authorised", "reason": "Access refused."},
    )
    api.send("PUT", "queues/%2F/bound", {"durable": True})
    between = "bindings/%2F/e/ex/q/bound"
    places = {}
    for key, arguments in (("a.b c/%", {}), ("", {}), ("k", {"x": 1}), ("k", {"x": 2}), ("~", {})):
        made = api.send("POST", between, {"routing_key": key, "arguments": arguments})
        assert made.status_code == 201
        places[made.headers["location"]] = (key, arguments)
    assert len(places) == 5
    assert {b["routing_key"] for b in api.get(between)} == {"a.b c/%", "", "k", "~"}
    for place, (key, arguments) in places.items():
        one = api.get(f"bindings/%2F/e/ex/q/{place.partition('/')[2]}".replace("/q/", "/q/bound/", 1))
        assert (one["routing_key"], one["arguments"]) == (key, arguments)
        assert api.status("DELETE", f"{between}/{place.partition('/')[2]}") == 204
    assert api.get(between) == []
    assert api.status("POST", "bindings/%2F/e/ex/q/none", {"routing_key": "k"}) == 404
    assert api.status("DELETE", "exchanges/%2F/ex") == 204


def test_messages_are_published_and_got_one_by_one(api: Api) -> None:
    api.send("PUT", "queues/%2F/single", {"durable": True})
    body = {
        "routing_key": "single",
        "payload": base64.b64encode(b"\xff\0").decode(),
        "payload_encoding": "base64",
        "properties": {"delivery_mode": 2, "headers": {"a": 1, "b": ["x"]}, "content_type": "t/p"},
    }
    publish = "exchanges/%2F/amq.default/publish"
    assert api.send("POST", publish, body).json() == {"routed": True}
    assert api.send("POST", publish, {**body, "routing_key": "none"}).json() == {"routed": False}
    text = {**body, "payload": "héllo", "payload_encoding": "string", "properties": {}}
    assert api.send("POST", publish, text).json() == {"routed": True}
    missing = api.send("POST", publish, {"routing_key": "x", "payload": ""}).json()["reason"]
    assert missing == "[{key_missing,properties},{key_missing,payload_encoding}]"
    get = {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}
    first, second = api.send("POST", "queues/%2F/single/get", get).json()
    assert first == {
        "payload_bytes": 2,
        "redelivered": False,
        "exchange": "",
        "routing_key": "single",
        "message_count": 1,
        "properties": {"delivery_mode": 2, "headers": {"a": 1, "b": ["x"]}, "content_type": "t/p"},
        "payload": base64.b64encode(b"\xff\0").decode(),
        "payload_encoding": "base64",
    }
    assert (second["payload"], second["payload_encoding"], second["properties"]) == ("héllo", "string", [])
    get["ackmode"] = "ack_requeue_false"
    again = api.send("POST", "queues/%2F/single/get", {**get, "count": 1}).json()
    assert [m["redelivered"] for m in again] == [True]
    assert api.status("DELETE", "queues/%2F/single/contents") == 204
    assert api.get("queues/%2F/single")["messages"] == 0
    assert api.send("POST", "queues/%2F/single/get", get).json() == []


def test_the_name_of_the_cluster_is_changed(api: Api) -> None:
    before = api.get("cluster-name")["name"]
    assert api.status("PUT", "cluster-name", {"name": "renamed"}) == 204
    assert api.get("cluster-name") == {"name": "renamed"}
    assert api.get("overview")["cluster_name"] == "renamed"
    assert api.get("global-parameters/cluster_name")["value"] == "renamed"
    assert api.status("PUT", "cluster-name", {"name": 1}) == 400
    assert api.status("PUT", "cluster-name", {"name": ""}) == 204
    assert api.get("cluster-name") == {"name": before}


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


@pytest.mark.parametrize("http2", [False, True])
def test_lists_travel_compressed_and_not_at_all_to_whom_has_them(gateway: Gateway, http2: bool) -> None:
    url = f"http://127.0.0.1:{gateway.ports['management']}/api/exchanges"
    with httpx.Client(auth=("guest", "guest"), http1=not http2, http2=http2, timeout=LIMIT_S) as client:
        plain = client.get(url, headers={"accept-encoding": "identity"})
        packed = client.get(url, headers={"accept-encoding": "br;q=1, gzip;q=0.5"})
        assert "content-encoding" not in plain.headers
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.json() == plain.json()
        assert packed.num_bytes_downloaded < plain.num_bytes_downloaded / 3
        tag = plain.headers["etag"]
        assert packed.headers["etag"] == tag
        for known in (tag, f'"other", {tag}', tag.removeprefix("W/"), "*"):
            again = client.get(url, headers={"if-none-match": known})
            assert (again.status_code, again.content) == (304, b"")
        assert client.get(url, headers={"if-none-match": '"other"'}).status_code == 200
        assert "content-encoding" not in client.get(url, headers={"accept-encoding": "gzip;q=0"}).headers
        changed = client.put(f"{url}/%2F/tagged", json={"type": "direct"})
        assert changed.status_code == 201
        assert client.get(url, headers={"if-none-match": tag}).status_code == 200
        client.delete(f"{url}/%2F/tagged")


def test_connections_are_shown_and_closed(api: Api, gateway: Gateway) -> None:
    parameters = pika.ConnectionParameters(
        "127.0.0.1", gateway.amqp_port, client_properties={"connection_name": "me"}
    )
    connection = pika.BlockingConnection(parameters)
    connection.channel()
    (mine,) = [c for c in api.get("connections") if c.get("user_provided_name") == "me"]
    assert (mine["protocol"], mine["user"], mine["vhost"], mine["channels"]) == (
        "AMQP 0-9-1",
        "guest",
        "/",
        1,
    )
    path = "connections/" + mine["name"].replace(" ", "%20").replace(">", "%3E")
    assert api.get(path + "/channels")[0]["number"] == 1
    answer = api.client.delete(path, headers={"X-Reason": "go away"})
    assert answer.status_code == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="go away") as closed:
        connection.process_data_events(time_limit=60)
    assert closed.value.reply_code == 320
    assert until(lambda: api.status("GET", path) == 404)


def test_mqtt_clients_are_connections_and_their_sessions_queues(api: Api, gateway: Gateway) -> None:
    subscribed = threading.Event()
    client = paho.Client(
        paho.CallbackAPIVersion.VERSION2, client_id="thermo", protocol=paho.MQTTv5, reconnect_on_failure=False
    )
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.loop_start()
    client.subscribe("a/+", qos=1)
    assert subscribed.wait(60)
    (one,) = [c for c in api.get("connections") if c["variable_map"].get("client_id") == "thermo"]
    assert one["protocol"] == "MQTT 5-0"
    (session,) = [q for q in api.get("queues/%2F") if q["name"] == "mqtt-subscription-thermoqos1"]
    assert session["consumers"] == 1
    (consumer,) = [c for c in api.get("consumers") if c["consumer_tag"] == "a/+"]
    assert consumer["channel_details"]["connection_name"] == one["name"]
    assert consumer["queue"] == {"name": "mqtt-subscription-thermoqos1", "vhost": "/"}
    shown = api.get("queues/%2F/mqtt-subscription-thermoqos1")
    assert [c["consumer_tag"] for c in shown["consumer_details"]] == ["a/+"]
    subscribed.clear()
    client.subscribe("$share/g/b/#", qos=1)
    assert subscribed.wait(60)
    for name in ("mqtt-subscription-thermoqos1", "mqtt-subscription-$share/g/b/#qos1"):
        shown = api.get(f"queues/%2F/{quote(name, safe='')}")
        assert (shown["name"], shown["consumers"], shown["messages_dropped"]) == (name, 1, 0)
        assert [c["queue"]["name"] for c in shown["consumer_details"]] == [name]
    assert api.status("GET", "queues/%2F/mqtt-subscription-$share%2Fg%2Fotherqos1") == 404
    client.disconnect()
    client.loop_stop()
    client._reset_sockets()


def test_an_administrator_ends_the_session_of_another_user(api: Api, gateway: Gateway) -> None:
    """Whether its client is connected or away; nobody else may."""
    path = "queues/%2F/mqtt-subscription-a%2Fwardqos1"
    for user, tags in (("monitor", "monitoring"), ("admin", "administrator")):
        assert api.status("PUT", f"users/{user}", {"password": user, "tags": tags}) in (201, 204)
        grant = dict.fromkeys(("configure", "write", "read"), ".*")
        assert api.status("PUT", f"permissions/%2F/{user}", grant) in (201, 204)
    assert api.status("DELETE", path) == 404
    for is_connected in (True, False):
        connected, gone = threading.Event(), threading.Event()
        client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, "a/ward", clean_session=False, reconnect_on_failure=False
        )
        client.on_connect = lambda *_, connected=connected: connected.set()
        client.on_disconnect = lambda *_, gone=gone: gone.set()
        client.connect("127.0.0.1", gateway.mqtt_port)
        client.loop_start()
        assert connected.wait(60)
        client.subscribe("ward", qos=1)  # without one it has no queue
        assert until(lambda: api.status("GET", path) == 200)
        if not is_connected:
            client.disconnect()
            assert gone.wait(60)
            assert until(lambda: api.get(path)["consumers"] == 0)
        with closing(Api(gateway, "monitor", "monitor")) as monitor:
            assert monitor.status("DELETE", path) == 401
        with closing(Api(gateway, "admin", "admin")) as admin:
            if is_connected:
                assert admin.status("DELETE", f"{path}?if-unused=true") == 400
            assert admin.status("DELETE", path) == 204
        assert gone.wait(60)
        assert api.status("GET", path) == 404
        client.loop_stop()


def test_a_page_learns_the_version_and_the_ways_to_log_in_before_the_login(gateway: Gateway) -> None:
    url = f"http://127.0.0.1:{gateway.ports['management']}/api"
    assert httpx.get(f"{url}/version", timeout=LIMIT_S).json() == "4.2.0"
    assert httpx.get(f"{url}/auth", timeout=LIMIT_S).json()["enable_uaa"] is False
    for path in ("auth/attempts/penstock@localhost", "version/x", "overview", "feature-flags"):
        assert httpx.get(f"{url}/{path}", timeout=LIMIT_S).status_code in (401, 404), path
    assert httpx.put(f"{url}/version", timeout=LIMIT_S).status_code in (401, 405)


def test_the_one_active_consumer_of_a_queue_is_shown_as_such(api: Api, channel: Any) -> None:
    channel.queue_declare("one-active", arguments={"x-single-active-consumer": True})
    channel.queue_declare("all-active")
    for queue, tag in (("one-active", "first"), ("one-active", "second"), ("all-active", "third")):
        channel.basic_consume(queue, lambda *_: None, consumer_tag=tag)
    shown = {c["consumer_tag"]: c["activity_status"] for c in api.get("consumers/%2F")}
    assert shown.items() >= {"first": "single_active", "second": "waiting", "third": "up"}.items()
    for queue in ("one-active", "all-active"):
        channel.queue_delete(queue)


def test_feature_flags_have_the_keys_that_rabbitmqs_page_reads(api: Api) -> None:
    for flag in api.get("feature-flags"):
        assert flag.keys() >= {"name", "state", "stability", "provided_by", "require_level", "callbacks"}


def test_the_parts_of_the_memory_are_told_relative_to_each_other(api: Api) -> None:
    node = api.get("nodes")[0]["name"]
    absolute = api.get(f"nodes/{node}/memory")["memory"]
    relative = api.get(f"nodes/{node}/memory/relative")["memory"]
    assert relative.keys() == absolute.keys() - {"strategy"}
    assert relative["total"] == 100
    assert 100 <= sum(relative.values()) - 100 <= 100 + len(relative)
    assert api.status("GET", "nodes/nobody/memory/relative") == 404


@pytest.mark.parametrize("auth", [None, ("guest", "wrong"), ("nobody", "guest")])
def test_a_login_is_needed(gateway: Gateway, auth: tuple[str, str] | None) -> None:
    answer = httpx.get(
        f"http://127.0.0.1:{gateway.ports['management']}/api/overview", auth=auth, timeout=LIMIT_S
    )
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Basic realm="RabbitMQ Management"'
    assert answer.json()["error"] == "not_authorized"


def test_health_checks(api: Api, gateway: Gateway) -> None:
    for path in ("alarms", "local-alarms", "virtual-hosts", "is-in-service", "ready-to-serve-clients"):
        assert api.get(f"health/checks/{path}") == {"status": "ok"}
    node = api.get("overview")["node"]
    for path in ("", "/", f"/{node}"):
        assert api.get(f"healthchecks/node{path}") == {"status": "ok"}
    assert api.status("GET", "healthchecks/node/other@host") == 404
    assert api.get(f"health/checks/port-listener/{gateway.amqp_port}")["status"] == "ok"
    assert api.get("health/checks/protocol-listener/mqtt") == {"status": "ok", "protocol": "mqtt"}
    missing = api.send("GET", "health/checks/port-listener/9")
    assert (missing.status_code, missing.json()["reason"]) == (503, "No active listener")
    assert api.get("health/checks/certificate-expiration/1/weeks") == {"status": "ok"}, "there is no TLS here"
    assert api.status("GET", "health/checks/certificate-expiration/1/moons") == 400
    assert api.get("aliveness-test/%2F") == {"status": "ok"}


def test_certificates_that_end_soon_fail_their_check(tmp_path: Path) -> None:
    pair = Authority(tmp_path / "ca").server()
    settings = {
        **SETTINGS,
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
        "amqp.tls_listen": "127.0.0.1:0",
    }
    with Gateway(tmp_path / "gateway", settings=settings) as gateway:
        api = Api(gateway)
        assert api.get("health/checks/certificate-expiration/1/days") == {"status": "ok"}
        failed = api.send("GET", "health/checks/certificate-expiration/2/months")
        assert (failed.status_code, failed.json()["status"]) == (503, "failed")
        (expired,) = failed.json()["expired"]
        assert (expired["path"], expired["subject"]) == (str(pair.cert), "CN=localhost")
        api.close()


@pytest.mark.parametrize("http2", [False, True])
def test_both_versions_of_http_serve_the_same(api: Api, gateway: Gateway, http2: bool) -> None:
    url = f"http://127.0.0.1:{gateway.ports['management']}/api/exchanges/%2F"
    with httpx.Client(auth=("guest", "guest"), http1=not http2, http2=http2, timeout=LIMIT_S) as client:
        answers = [client.get(url) for _ in range(3)]
    assert {answer.http_version for answer in answers} == {"HTTP/2" if http2 else "HTTP/1.1"}
    assert [e["name"] for e in answers[0].json()] == [e["name"] for e in api.get("exchanges/%2F")]


# Tools, unmodified


def rabbitmqadmin(gateway: Gateway, *words: str) -> str:
    program = next(Path("/usr/lib/rabbitmq/lib").glob("*/plugins/rabbitmq_management-*/priv/www/cli"), None)
    if program is None:
        pytest.skip("rabbitmqadmin is not installed: apt-get install rabbitmq-server")
    done = subprocess.run(
        [sys.executable, str(program / "rabbitmqadmin"), "-P", str(gateway.ports["management"]), *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rabbitmqadmin_works_unmodified(api: Api, gateway: Gateway) -> None:
    def admin(*words: str) -> str:
        return rabbitmqadmin(gateway, *words)

    assert admin("declare", "exchange", "name=adm", "type=fanout") == "exchange declared\n"
    assert admin("declare", "queue", "name=admq", "durable=true") == "queue declared\n"
    assert admin("declare", "binding", "source=adm", "destination=admq") == "binding declared\n"
    assert admin("publish", "exchange=adm", "routing_key=x", "payload=hello") == "Message published\n"
    rows = json.loads(admin("-f", "raw_json", "get", "queue=admq", "ackmode=ack_requeue_false"))
    assert [row["payload"] for row in rows] == ["hello"]
    for what in (
        "connections channels consumers exchanges queues bindings users vhosts permissions nodes "
        "parameters policies operator_policies vhost_limits"
    ).split():
        admin("list", what)
    assert "penstock" in admin("-f", "raw_json", "show", "overview", "product_name")
    assert "admq" in admin("list", "queues", "name", "messages")
    admin("purge", "queue", "name=admq")
    admin("delete", "binding", "source=adm", "destination_type=queue", "destination=admq", "properties_key=~")
    admin("delete", "queue", "name=admq")
    admin("delete", "exchange", "name=adm")


KOMBU = """
import sys, kombu
with kombu.Connection(f"amqp://guest:guest@127.0.0.1:{sys.argv[1]}//") as connection:
    manager = connection.get_manager(port=int(sys.argv[2]))
    print([queue["name"] for queue in manager.get_queues("/")], manager.get_overview()["product_name"])
"""
FLOWER = """
import asyncio, sys
from flower.utils.broker import Broker
broker = Broker(f"amqp://guest:guest@127.0.0.1:{sys.argv[1]}//", f"http://guest:guest@127.0.0.1:{sys.argv[2]}/api/")
print(asyncio.run(broker.queues(["tool-seen"])))
"""


@pytest.mark.parametrize("program", [KOMBU, FLOWER], ids=["kombu", "flower"])
def test_kombus_and_flowers_clients_read_it(gateway: Gateway, channel: Any, program: str) -> None:
    """In a process of their own: pyrabbit and Flower do not close what they open."""
    channel.queue_declare("tool-seen", durable=True)
    words = [sys.executable, "-c", program, str(gateway.amqp_port), str(gateway.ports["management"])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "tool-seen" in done.stdout
