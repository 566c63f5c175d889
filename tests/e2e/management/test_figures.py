"""Numbers, rates and plots of the management API."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pika
import pytest

from tests.support.data_plane import until
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own API")


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
