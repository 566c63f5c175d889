"""Monitoring and provisioning tools read the management API; each test reads it as one of them does.

Each test takes the fields of one tool's sources, by the paths it asks for, with the types it decodes them to.
Tools in Go decode into structs: a field of another type fails the whole answer, a missing one is zero. Tools
in Rust refuse a missing one, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import pika
import pytest

from tests.support.brokers import Gateway
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own management API")

Number = int | float
LISTED = "%2F"


@pytest.fixture(scope="module")
def busy(gateway: Gateway, api: Api) -> Iterator[str]:
    """A queue with traffic that the API has counted."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("busy", durable=True)
        channel.queue_declare("waiting", durable=True)
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume("busy", lambda *_: None)
        for _ in range(3):
            channel.basic_publish("", "busy", b"x", pika.BasicProperties(delivery_mode=2))
        ends = time.monotonic() + 60
        while api.get("queues/%2F/busy")["messages_unacknowledged"] != 1:
            assert time.monotonic() < ends
            connection.process_data_events(time_limit=0.05)
        yield "busy"


def has(value: Any, fields: Mapping[str, Any]) -> None:
    """`value` has each field (dots go inside) with that type."""
    for path, kind in fields.items():
        found = value
        for name in path.split("."):
            assert isinstance(found, dict) and name in found, f"{path} is missing"
            found = found[name]
        assert isinstance(found, kind), f"{path} is {found!r}"
        assert kind is bool or Number not in (kind,) or not isinstance(found, bool), path


def optional(value: Any, fields: Mapping[str, Any]) -> None:
    """As Go decodes: what is there has that type."""
    for path, kind in fields.items():
        found = value
        for name in path.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        assert found is None or isinstance(found, kind), f"{path} is {found!r}"


RATES = {"message_stats.publish_details.rate": Number, "message_stats.deliver_get_details.rate": Number}


def test_keda_scales_by_a_queue_or_by_all_that_match(api: Api, busy: str) -> None:
    counts = {"messages": int, "messages_ready": int, "messages_unacknowledged": int, "name": str}
    one = api.get(f"queues/{LISTED}/{busy}")
    has(one, {**counts, **RATES})
    assert (one["messages"], one["messages_unacknowledged"]) == (3, 1)
    page = api.get(f"queues/{LISTED}?page=1&use_regex=true&pagination=false&name=^busy$&page_size=100")
    has(page, {"items": list, "page_count": int, "filtered_count": int})
    assert [item["name"] for item in page["items"]] == [busy]
    has(page["items"][0], {**counts, **RATES})


def test_flower_shows_queues(api: Api, busy: str) -> None:
    for queue in api.get(f"queues/{LISTED}"):
        has(queue, {"name": str, "messages": int, "messages_ready": int, "messages_unacknowledged": int})
        has(queue, {"consumers": int})


def test_telegraf_decodes_every_answer(api: Api, busy: str) -> None:
    stats = [
        f"message_stats.{name}{suffix}"
        for name in ("ack", "deliver", "deliver_get", "publish", "redeliver", "return_unroutable")
        for suffix in ("", "_details.rate")
    ]
    overview = api.get("overview")
    has(overview, dict.fromkeys(stats, Number))
    totals = "channels connections consumers exchanges queues".split()
    has(overview, {f"object_totals.{name}": int for name in totals})
    has(overview, {f"queue_totals.messages{end}": int for end in ("", "_ready", "_unacknowledged")})
    optional(overview, {f"queue_totals.message_bytes{end}": int for end in ("", "_ready")})
    assert {"amqp", "http"} <= {listener["protocol"] for listener in overview["listeners"]}
    (node,) = api.get("nodes")
    numbers = "disk_free disk_free_limit fd_total fd_used mem_limit mem_used proc_total proc_used"
    numbers += " run_queue sockets_total sockets_used uptime"
    has(node, {"name": str, "running": bool, "mem_alarm": bool, "disk_free_alarm": bool})
    has(node, dict.fromkeys(numbers.split(), int))
    optional(node, dict.fromkeys("gc_num gc_bytes_reclaimed io_read_bytes io_write_bytes".split(), int))
    optional(node, dict.fromkeys("io_read_avg_time io_write_avg_time".split(), Number))
    memory = api.get(f"nodes/{node['name']}/memory")["memory"]  # an error here drops the whole node
    parts = "connection_readers connection_writers connection_channels queue_procs plugins binary code atom"
    has(memory, dict.fromkeys(parts.split(), int))
    assert isinstance(memory["total"], int) or isinstance(memory["total"]["rss"], int)
    for queue in api.get("queues"):
        has(queue, {"name": str, "vhost": str, "node": str, "durable": bool, "auto_delete": bool})
        has(queue, {"consumers": int, "messages": int, "messages_ready": int})
        has(queue, {"message_stats.publish_details.rate": Number})
        optional(queue, {"memory": int, "message_bytes": int, "idle_since": str, "slave_nodes": list})
        optional(queue, {"consumer_utilisation": Number, "head_message_timestamp": int})
    for exchange in api.get("exchanges"):
        has(exchange, {"name": str, "vhost": str, "type": str, "internal": bool, "durable": bool})
        optional(exchange, {"message_stats.publish_in": int, "message_stats.publish_out": int})
    assert api.get("federation-links") == []


def test_datadog_asks_for_each_vhost_and_each_queue(api: Api, busy: str) -> None:
    assert [vhost["name"] for vhost in api.get("vhosts")] == ["/"]
    overview = api.get("overview")
    has(overview, {"cluster_name": str, "rabbitmq_version": str, "message_stats.publish": int})
    has(overview, {"message_stats.drop_unroutable": int, "message_stats.return_unroutable": int})
    (node,) = api.get("nodes")
    has(node, {"partitions": list, "running": bool, "mem_used": int, "fd_used": int, "sockets_used": int})
    for queue in api.get(f"queues/{LISTED}"):
        has(queue, {"consumers": int, "messages_ready": int, "message_stats.ack_details.rate": Number})
        optional(queue, {"active_consumers": int, "message_bytes": int})
        assert isinstance(api.get(f"queues/{LISTED}/{queue['name']}/bindings"), list)
    for path in ("connections", f"vhosts/{LISTED}/connections"):
        assert {(one["vhost"], one["state"]) for one in api.get(path)} == {("/", "running")}
    assert api.client.get(f"aliveness-test/{LISTED}").text == '{"status":"ok"}'


def test_datadog_writes_a_space_as_plus(api: Api) -> None:
    assert api.status("PUT", "queues/%2F/two%20words", {"durable": True}) == 201
    assert api.get("queues/%2F/two+words")["name"] == "two words"


def test_zabbix_follows_its_paths(api: Api, gateway: Gateway, busy: str) -> None:
    answer = api.client.get("overview")
    assert answer.http_version == "HTTP/1.1" and answer.status_code == 200
    overview = answer.json()
    has(overview, {f"object_totals.{name}": int for name in ("channels", "connections", "queues")})
    has(overview, {f"queue_totals.{name}": int for name in ("messages", "messages_ready")})
    for name in "ack confirm deliver_get publish return_unroutable redeliver".split():
        has(overview, {f"message_stats.{name}": int, f"message_stats.{name}_details.rate": Number})
    major, minor, patch = map(int, overview["rabbitmq_version"].split("."))
    assert (major, minor, patch) >= (3, 8, 10), "which selects the health checks"
    assert overview["management_version"] == overview["rabbitmq_version"]
    for check in ("alarms", "local-alarms", "virtual-hosts"):
        assert api.get(f"health/checks/{check}") == {"status": "ok"}
    (queue,) = [one for one in api.get("queues") if one["name"] == busy]
    for name in "ack deliver_get publish redeliver".split():
        has(queue, {f"message_stats.{name}": int, f"message_stats.{name}_details.rate": Number})


def test_the_kbudde_exporter_sorts_by_nothing_and_takes_json(api: Api, busy: str) -> None:
    accepts = {"accept": "application/bert, application/json;q=0.5"}
    for path in ("overview", "nodes", "queues", "exchanges", "connections", "shovels", "federation-links"):
        answer = api.client.get(f"{path}?sort=", headers=accepts)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("application/json"), path
    (node,) = api.get("nodes")
    assert 0 < node["uptime"] < 2**32, "milliseconds, of 32 bits for others"
    for queue in api.get("queues"):
        has(queue, {"state": str, "arguments": dict})
        assert "policy" in queue


def test_terraform_finds_what_it_made(api: Api) -> None:
    """A GET returns the object of the PUT, and 404 for a missing one; a binding has its properties key."""
    assert api.status("PUT", "vhosts/tf", {"description": "d", "tags": ["a"], "tracing": False}) == 201
    assert api.status("PUT", "vhosts/tf", {"description": "d", "tags": ["a"], "tracing": False}) == 204
    vhost = api.get("vhosts/tf")
    assert (vhost["description"], vhost["tags"], vhost["tracing"]) == ("d", ["a"], False)
    assert api.status("PUT", "vhost-limits/tf/max-queues", {"value": 10}) == 204
    assert api.get("vhost-limits/tf") == [{"vhost": "tf", "value": {"max-queues": 10}}]
    assert api.status("PUT", "users/tf", {"password": "p", "tags": "management,monitoring"}) == 201
    assert sorted(api.get("users/tf")["tags"]) == ["management", "monitoring"]
    rights = {"configure": ".*", "write": "^a", "read": ""}
    assert api.status("PUT", "permissions/tf/tf", rights) == 201
    assert api.get("permissions/tf/tf") == {"user": "tf", "vhost": "tf", **rights}
    # The creator of a vhost may use it.
    assert api.status("PUT", "permissions/tf/guest", dict.fromkeys(rights, ".*")) == 204
    exchange = {"type": "topic", "durable": True, "auto_delete": False, "internal": False, "arguments": {}}
    assert api.status("PUT", "exchanges/tf/x", exchange) == 201
    assert {name: api.get("exchanges/tf/x")[name] for name in exchange} == exchange
    queue = {"durable": True, "auto_delete": False, "arguments": {"x-message-ttl": 5000}}
    assert api.status("PUT", "queues/tf/q", queue) == 201
    assert {name: api.get("queues/tf/q")[name] for name in queue} == queue
    for key, arguments in (("a.*", {}), ("#", {"n": 1})):
        body = {"routing_key": key, "arguments": arguments}
        made = api.send("POST", "bindings/tf/e/x/q/q", body)
        assert made.status_code == 201
        properties = unquote(made.headers["location"].rpartition("/")[2])
        (found,) = [b for b in api.get("bindings/tf/e/x/q/q") if b["routing_key"] == key]
        assert found["properties_key"] == properties and found["arguments"] == arguments
        assert api.get(f"bindings/tf/e/x/q/q/{properties.replace('%', '%25')}")["routing_key"] == key
        assert api.status("DELETE", f"bindings/tf/e/x/q/q/{properties.replace('%', '%25')}") == 204
    policy = {"pattern": "^a", "definition": {"max-length": 5}, "priority": 3, "apply-to": "queues"}
    assert api.status("PUT", "policies/tf/p", policy) == 201
    assert api.get("policies/tf/p") == {"vhost": "tf", "name": "p", **policy}
    assert api.get("parameters/shovel/tf") == []
    for path in (
        "policies/tf/p",
        "queues/tf/q",
        "exchanges/tf/x",
        "permissions/tf/tf",
        "users/tf",
        "vhosts/tf",
    ):
        assert api.status("DELETE", path) == 204
        assert api.status("GET", path) == 404, path


_NODE = "uptime run_queue processors fd_total proc_total mem_limit disk_free_limit"
REQUIRED: dict[str, dict[str, Any]] = {
    "nodes": {
        **dict.fromkeys(
            "uptime run_queue processors fd_total proc_total mem_limit disk_free_limit".split(), int
        ),
        **dict.fromkeys("mem_alarm disk_free_alarm being_drained".split(), bool),
        **{"name": str, "os_pid": str, "rates_mode": str, "enabled_plugins": list},
    },
    "connections": {
        **dict.fromkeys("name node protocol user".split(), str),
        **{"connected_at": int, "client_properties": dict},
    },
    "channels": {
        **dict.fromkeys("number consumer_count prefetch_count messages_unacknowledged".split(), int),
        **{"messages_unconfirmed": int, "name": str, "vhost": str, "state": str, "confirm": bool},
        **{"connection_details.name": str, "connection_details.peer_host": str},
        "connection_details.peer_port": int,
    },
    "consumers": {
        **{"consumer_tag": str, "active": bool, "ack_required": bool, "prefetch_count": int},
        **{"exclusive": bool, "consumer_timeout": int, "queue.name": str, "queue.vhost": str},
    },
    "queues": {
        **{"name": str, "vhost": str, "type": str, "durable": bool, "auto_delete": bool, "exclusive": bool},
        "arguments": dict | list,
    },
}


@pytest.mark.parametrize("path", sorted(REQUIRED))
def test_rabbitmqadmin_ng_finds_every_field_it_requires(api: Api, busy: str, path: str) -> None:
    found = api.get(path)
    assert found
    for item in found:
        has(item, REQUIRED[path])


def test_feature_flags_are_all_enabled(api: Api) -> None:
    flags = api.get("feature-flags")
    for flag in flags:
        has(flag, dict.fromkeys("name state desc doc_url stability provided_by".split(), str))
    assert {"quorum_queue", "stream_queue", "user_limits"} <= {flag["name"] for flag in flags}
    assert {flag["state"] for flag in flags} == {"enabled"}
    assert api.status("PUT", "feature-flags/user_limits/enable", {"name": "user_limits"}) == 204
    assert api.status("PUT", "feature-flags/nope/enable", {"name": "nope"}) == 400


def test_logins_are_counted_by_protocol(api: Api, busy: str) -> None:
    (node,) = api.get("nodes")
    found = {one.pop("protocol"): one for one in api.get(f"auth/attempts/{node['name']}")}
    for one in found.values():
        assert one["auth_attempts"] == one["auth_attempts_succeeded"] + one["auth_attempts_failed"]
    assert found["amqp091"]["auth_attempts_succeeded"] >= 1
    assert found["http"]["auth_attempts_succeeded"] >= 1
    assert api.status("GET", "auth/attempts/nobody") == 404


def test_rabbitmqadmin_ng_reads_the_whole(api: Api, busy: str) -> None:
    overview = api.get("overview")
    texts = (
        "cluster_name node erlang_full_version erlang_version rabbitmq_version product_name product_version"
    )
    has(overview, {**dict.fromkeys(texts.split(), str), "statistics_db_event_queue": int})
    churn = "connection_created connection_closed channel_created channel_closed queue_declared queue_created"
    has(overview, {f"churn_rates.{name}": int for name in (*churn.split(), "queue_deleted")})
    has(overview, {"queue_totals.messages": int, "queue_totals.messages_details.rate": Number})
    for listener in overview["listeners"]:
        has(listener, {"node": str, "protocol": str, "port": int, "ip_address": str})
    (node,) = api.get("nodes")
    assert node["os_pid"].isdigit()
    assert 0 < node["uptime"] < 2**32
    memory = api.get(f"nodes/{node['name']}/memory")["memory"]
    parts = """connection_readers connection_writers connection_channels connection_other queue_procs
        quorum_queue_procs stream_queue_procs stream_queue_replica_reader_procs stream_queue_coordinator_procs
        plugins metadata_store other_proc metrics mgmt_db mnesia quorum_ets metadata_store_ets other_ets
        binary msg_index code atom other_system allocated_unused reserved_unallocated"""
    has(memory, dict.fromkeys(parts.split(), int))
    has(memory, {"strategy": str, "total.rss": int, "total.allocated": int, "total.erlang": int})
    definitions = api.get("definitions")
    kinds = "users vhosts permissions parameters policies queues exchanges bindings".split()
    has(definitions, dict.fromkeys(kinds, list))
    assert api.get("whoami")["name"] == "guest"
