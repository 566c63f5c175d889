"""Uncommitted messages are invisible by every way of reading. Committed ones are complete and in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import httpx
import paho.mqtt.client as paho
import pika
import pytest

import penstock.sync
from penstock.spark.logs.log_view import LogView
from penstock.spark.logs.reading import Selection, read_parts
from tests.support.brokers import Gateway
from tests.support.data_plane import open_client
from tests.support.hooks import LOCAL, Hooks
from tests.support.limits import LIMIT_S
from tests.support.receiver import Receiver

pytestmark = pytest.mark.penstock_only("these are penstock's own ways to read")

N = 200
AMQP, HTTP, SDK = ([f"{by}-{i}" for i in range(N)] for by in ("amqp", "http", "sdk"))
WANTED = ["before", *AMQP, *HTTP, *SDK, "after"]
"""No message that was rolled back; `before`, published while the transactions were staged, is first."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {**LOCAL, "native.listen": "127.0.0.1:0"}
    with Gateway(tmp_path_factory.mktemp("committed"), settings=settings) as running:
        yield running


def listen(gateway: Gateway, topic: str, stack: ExitStack) -> SimpleQueue[str]:
    """The messages of a new MQTT client with a filter, once it has subscribed."""
    got: SimpleQueue[str] = SimpleQueue()
    ready: SimpleQueue[object] = SimpleQueue()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.on_message = lambda _, data, message: got.put(message.payload.decode())
    client.on_connect = lambda *_: client.subscribe(topic, 1)
    client.on_subscribe = lambda *_: ready.put(None)
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.loop_start()
    stack.callback(client.loop_stop)
    stack.callback(client.disconnect)
    ready.get(timeout=LIMIT_S)
    return got


def take(got: SimpleQueue[str]) -> list[str]:
    return [got.get(timeout=LIMIT_S) for _ in WANTED]


def tailed(answer: httpx.Response) -> list[str]:
    """The messages of a tail, as server-sent events."""
    bodies: list[str] = []
    for line in answer.iter_lines():
        if line.startswith("data: ") and "value" in (message := json.loads(line[6:])):
            bodies.append(message["value"])
            if len(bodies) == len(WANTED):
                break
    return bodies


def in_files(folder: Path, key: str) -> list[str]:
    """The messages that Spark's tasks read from the files of the log."""
    view = LogView(folder)
    view.refresh()
    parts = view.parts(view.first, view.end(written=True), 1 << 62)
    rows: list[dict[str, Any]] = []
    for batch in read_parts(folder, parts, Selection(("routing_key", "payload"))):
        rows += batch.to_pylist()
    return [row["payload"].decode() for row in rows if row["routing_key"] == key]


def test_everybody_sees_all_of_a_transaction_or_nothing(gateway: Gateway, unique: str) -> None:
    key, topic = f"{unique}.k", f"{unique}/k"
    with ExitStack() as stack:
        amqp = stack.enter_context(
            pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port))
        )
        plain, rolled_back, committed = amqp.channel(), amqp.channel(), amqp.channel()
        plain.confirm_delivery()
        http = stack.enter_context(open_client(gateway))
        hooks, receiver = Hooks(gateway), stack.enter_context(Receiver())
        stack.callback(hooks.close)
        url = f"penstock://guest:guest@127.0.0.1:{gateway.ports['native']}"
        sdk = stack.enter_context(penstock.sync.connect(url))

        # All who look.
        sdk.admin.create_topic(unique)
        for name, of in ((f"{unique}.q", "queue"), (f"{unique}.h", "queue"), (unique, "topic")):
            if of == "queue":
                plain.queue_declare(name, durable=True)
                plain.queue_bind(name, "amq.topic", key)
            else:
                sdk.admin.bind(name, "amq.topic", key)
        hooks.put(unique, source={"queue": f"{unique}.h"}, url=receiver.url)
        hooks.wait(unique, lambda shown: shown["state"] == "active")
        subscription = stack.enter_context(sdk.subscribe(unique, "s", start="earliest"))
        live = listen(gateway, topic, stack)
        tail = stack.enter_context(http.stream("GET", f"exchanges/amq.topic/tail?pattern={key}"))

        # Transactions by every protocol, of which one each is rolled back.
        transactions = [
            http.post("transactions", json={"timeout_ms": 900_000}).json()["id"] for _ in range(2)
        ]
        for channel in (rolled_back, committed):
            channel.tx_select()
        persistent = pika.BasicProperties(delivery_mode=2)
        for body in AMQP:
            for channel in (rolled_back, committed):
                channel.basic_publish("amq.topic", key, body, persistent)
        for number in transactions:
            messages = {"messages": [{"value": body, "routing_key": key} for body in HTTP]}
            staged = http.post(f"exchanges/amq.topic/messages?txn={number}", json=messages)
            assert staged.status_code == 202, staged.text
        plain.basic_publish("amq.topic", key, "before", persistent)
        rolled_back.tx_rollback()
        committed.tx_commit()
        assert http.post(f"transactions/{transactions[0]}/rollback").is_success
        assert http.post(f"transactions/{transactions[1]}/commit").is_success
        with sdk.producer(exchange="amq.topic", routing_key=key) as producer:
            with pytest.raises(KeyError), sdk.transaction() as undone:
                undone.send("undone", to=producer)
                raise KeyError
            with sdk.transaction() as done:
                for body in SDK:
                    done.send(body, to=producer)
        plain.basic_publish("amq.topic", key, "after", persistent)

        assert take(live) == WANTED, "MQTT"
        assert take(listen(gateway, f"$replay/-1h/{topic}", stack)) == WANTED, "MQTT, replayed"
        queued = plain.consume(f"{unique}.q", auto_ack=True, inactivity_timeout=LIMIT_S)
        assert [body.decode() for _, (_, _, body) in zip(WANTED, queued, strict=False)] == WANTED, "AMQP"
        assert [subscription.receive().body.decode() for _ in WANTED] == WANTED, "a subscription"
        with sdk.reader(unique, start="earliest") as reader:
            assert [reader.receive().body.decode() for _ in WANTED] == WANTED, "a reader"
        assert tailed(tail) == WANTED, "an HTTP tail"
        page = http.get(f"streams/{unique}/messages?max=1000&wait_ms=60000").json()["messages"]
        assert [one["value"] for one in page] == WANTED, "a stream over HTTP"
        assert in_files(gateway.data_dir, key) == WANTED, "the files, as Spark reads them"
        pushed = [one.body.decode() for one in receiver.wait_count(len(WANTED))]
        assert sorted(pushed) == sorted(WANTED), "a webhook"
