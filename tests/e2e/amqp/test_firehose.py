"""The firehose: what is published and delivered, copied to `amq.rabbitmq.trace`; the same on both brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from proton import Message
from proton.utils import BlockingConnection

from penstock.cli.rabbitmqctl import run
from tests.support.brokers import Broker, BrokerMissing, Gateway, RabbitMQ
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS
from tests.support.pika_queues import until

Ctl = Callable[..., None]


@pytest.fixture
def traced(broker_name: str, tmp_path: Path) -> Iterator[tuple[Broker, Ctl]]:
    """A broker, and rabbitmqctl for it."""
    if broker_name == "penstock":
        with Gateway(tmp_path / "broker", settings={**SETTINGS, "server.name": "plant"}) as gateway:
            url = f"http://guest:guest@127.0.0.1:{gateway.ports['management']}"

            def ctl(*words: str) -> None:
                assert run(("--url", url, *words)) == 0

            yield gateway, ctl
    elif broker_name == "rabbitmq":
        try:
            peer = RabbitMQ(tmp_path / "broker")
        except BrokerMissing as missing:
            pytest.skip(str(missing))
        with peer:
            yield peer, peer.ctl
    else:
        pytest.skip(f"{broker_name} has no firehose")


def copies(channel: BlockingChannel, n: int) -> list[tuple[str, dict[str, Any], bytes]]:
    """The next n copies: (routing key, headers, body)."""
    found = []
    for method, properties, body in channel.consume("trace", auto_ack=True, inactivity_timeout=LIMIT_S):
        assert method is not None and properties is not None and body is not None
        found.append((method.routing_key, dict(properties.headers or {}), body))
        if len(found) == n:
            break
    channel.cancel()
    return found


def test_publishes_and_deliveries_are_copied_while_it_is_on(traced: tuple[Broker, Ctl]) -> None:
    broker, ctl = traced
    parameters = pika.ConnectionParameters("127.0.0.1", broker.amqp_port)
    with pika.BlockingConnection(parameters) as watching, pika.BlockingConnection(parameters) as working:
        watcher, channel = watching.channel(), working.channel()
        watcher.queue_declare("trace")
        watcher.queue_bind("trace", "amq.rabbitmq.trace", "#")
        channel.confirm_delivery()
        for name in ("q1", "q2"):
            channel.queue_declare(name)
            channel.queue_bind(name, "amq.direct", "k")
        channel.basic_publish("amq.direct", "k", b"before")
        ctl("trace_on")
        properties = pika.BasicProperties(content_type="text/plain", headers={"CC": ["other"], "n": 1})
        channel.basic_publish("amq.direct", "k", b"traced", properties)
        channel.basic_publish("", "q1", b"to nobody else")
        taken = [channel.basic_get("q1") for _ in range(3)]
        channel.basic_nack(taken[2][0].delivery_tag, requeue=True)
        for method, _, _ in channel.consume("q1", auto_ack=True, inactivity_timeout=LIMIT_S):
            assert method.redelivered
            break
        channel.cancel()
        found = copies(watcher, 6)
        ctl("trace_off")
        channel.basic_publish("amq.direct", "k", b"after")
        until(lambda: watcher.queue_declare("q2", passive=True).method.message_count, lambda n: n == 3)
        assert watcher.queue_declare("trace", passive=True).method.message_count == 0

    for _, headers, _ in found:
        assert "@" in headers.pop("node")
        assert " -> 127.0.0.1:" in headers.pop("connection")
    where = {"vhost": "/", "channel": 1, "user": "guest"}
    told = {"content_type": "text/plain", "headers": {"CC": ["other"], "n": 1}}
    traced_ = {"exchange_name": "amq.direct", "routing_keys": ["k", "other"], "properties": told, **where}
    plain = {"exchange_name": "", "routing_keys": ["q1"], "properties": {}, **where}
    before = {**plain, "exchange_name": "amq.direct", "routing_keys": ["k"]}
    assert (found[0][0], found[0][2]) == ("publish.amq.direct", b"traced")
    assert sorted(found[0][1].pop("routed_queues")) == ["q1", "q2"]
    assert found[0][1] == traced_
    assert found[1:] == [
        ("publish.", {**plain, "routed_queues": ["q1"]}, b"to nobody else"),
        ("deliver.q1", {**before, "redelivered": 0}, b"before"),
        ("deliver.q1", {**traced_, "redelivered": 0}, b"traced"),
        ("deliver.q1", {**plain, "redelivered": 0}, b"to nobody else"),
        ("deliver.q1", {**plain, "redelivered": 1}, b"to nobody else"),
    ]


@pytest.mark.penstock_only("RabbitMQ 3 speaks AMQP 1.0 by a plug-in, with other addresses")
def test_messages_of_amqp_1_0_are_copied_too(traced: tuple[Broker, Ctl]) -> None:
    broker, ctl = traced
    parameters = pika.ConnectionParameters("127.0.0.1", broker.amqp_port)
    with pika.BlockingConnection(parameters) as watching:
        watcher = watching.channel()
        watcher.queue_declare("trace")
        watcher.queue_bind("trace", "amq.rabbitmq.trace", "#")
        watcher.queue_declare("q1", durable=True)
        connection = BlockingConnection(
            f"amqp://guest:guest@127.0.0.1:{broker.amqp_port}", timeout=LIMIT_S, allowed_mechs="PLAIN"
        )
        sender = connection.create_sender("/queues/q1")
        receiver = connection.create_receiver("/queues/q1")
        ctl("trace_on")
        sender.send(Message(body=b"traced", inferred=True, subject="s", properties={"n": 1}))
        assert receiver.receive(timeout=LIMIT_S).subject == "s"
        receiver.accept()
        opened = connection.conn.remote_properties
        (publish, put, body), (deliver, got, _) = copies(watcher, 2)
        ctl("trace_off")
        sender.send(Message(body=b"after", inferred=True))
        connection.close()
    assert (publish, deliver, body) == ("publish.", "deliver.q1", b"traced")
    assert put["routing_keys"] == got["routing_keys"] == ["q1"]
    assert put["routed_queues"] == ["q1"]
    assert put["properties"]["headers"] == got["properties"]["headers"] == {"n": 1}
    assert (put["vhost"], put["user"], put["channel"]) == ("/", "guest", 0)
    assert got["redelivered"] == 0
    assert put["node"] == got["node"] == opened["node"] == "penstock@plant"
