"""Each answer of the management API has the keys and types of RabbitMQ's."""

from __future__ import annotations

import json
from typing import Any

import pika
import pytest

from tests.support.management import GOLDEN, Api, mismatches

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


def test_feature_flags_have_the_keys_that_rabbitmqs_page_reads(api: Api) -> None:
    for flag in api.get("feature-flags"):
        assert flag.keys() >= {"name", "state", "stability", "provided_by", "require_level", "callbacks"}
