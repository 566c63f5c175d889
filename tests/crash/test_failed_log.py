"""The log fails under every kind of client: the gateway ends within a second, whoever is told first."""

from __future__ import annotations

import asyncio
import errno
import threading
import time
import urllib.request
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pika
import pytest

import penstock
from tests.crash.test_broken_disk import FaultyGateway, wait
from tests.support.limits import LIMIT_S

pytestmark = [pytest.mark.penstock_only("this is about penstock's log"), pytest.mark.timeout(300)]

Done = Callable[[], object]
"""Called for each message that was confirmed."""
DRAIN_TIMEOUT_S = 600.0
"""How long a stop would wait for connections. One after a failure does not: it takes a second."""


def amqp(gateway: FaultyGateway, done: Done) -> None:
    """A publisher with confirms."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        while True:
            channel.basic_publish("", "q", b"x", pika.BasicProperties(delivery_mode=2))
            done()


def amqp_consumer(gateway: FaultyGateway, done: Done) -> None:
    """A consumer whose queue is deleted with it."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        channel = connection.channel()
        channel.queue_declare("mine", exclusive=True, durable=True)
        while True:
            channel.basic_publish("", "mine", b"x", pika.BasicProperties(delivery_mode=2))
            method, _, _ = channel.basic_get("mine")
            if method is not None:
                channel.basic_ack(method.delivery_tag)
                done()


def mqtt(qos: int, *, durable: bool) -> Callable[[FaultyGateway, Done], None]:
    """A publisher that subscribes to its own topic; its session outlives it or not."""

    def run(gateway: FaultyGateway, done: Done) -> None:
        client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            f"{qos}{durable}",
            protocol=paho.MQTTv5,
            reconnect_on_failure=False,
        )
        gone = threading.Event()
        client.on_disconnect = lambda *_: gone.set()
        client.will_set("will", b"gone", 1, retain=True)
        properties = paho.Properties(paho.PacketTypes.CONNECT)  # type: ignore[no-untyped-call, attr-defined]
        properties.SessionExpiryInterval = 3600 if durable else 0
        client.connect("127.0.0.1", gateway.mqtt_port, properties=properties)
        client.loop_start()
        client.subscribe("t", qos)
        while not gone.is_set():
            sent = client.publish("t", b"x", qos)
            sent.wait_for_publish(0.2)
            if sent.is_published():
                done()
        client.loop_stop()

    return run


def http(gateway: FaultyGateway, done: Done) -> None:
    """A publisher over HTTP."""
    url = f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/exchanges/amq.topic/messages?routing_key=t"
    login = "Basic " + b64encode(b"guest:guest").decode()
    while True:
        headers = {"authorization": login, "content-type": "text/plain"}
        with urllib.request.urlopen(urllib.request.Request(url, b"x", headers), timeout=30) as answer:
            answer.read()
        done()


def native(gateway: FaultyGateway, done: Done) -> None:
    """A named producer of the SDK."""

    async def run() -> None:
        url = f"penstock://127.0.0.1:{gateway.ports['native']}"
        async with penstock.connect(url) as client, client.producer("topic", name="shop") as producer:
            while True:
                async with asyncio.timeout(LIMIT_S / 4):
                    await producer.send("x")
                done()

    asyncio.run(run())


CLIENTS = {
    "amqp": amqp,
    "amqp consumer": amqp_consumer,
    "mqtt qos 1": mqtt(1, durable=False),
    "mqtt qos 1 durable": mqtt(1, durable=True),
    "mqtt qos 2 durable": mqtt(2, durable=True),
    "http": http,
    "native": native,
}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[FaultyGateway]:
    made = FaultyGateway(tmp_path / "gateway")
    made.settings.update({"http.listen": "127.0.0.1:0", "native.listen": "127.0.0.1:0"})
    made.settings["server.drain_timeout_s"] = str(DRAIN_TIMEOUT_S)
    try:
        yield made.start()
    finally:
        if made.running:
            made.kill9()


def begin(gateway: FaultyGateway, kinds: list[str]) -> None:
    """Start clients; they end with an error of their own when the gateway does."""

    counts: Counter[str] = Counter()

    def run(kind: str) -> None:
        try:
            CLIENTS[kind](gateway, lambda: counts.update([kind]))
        except BaseException:
            pass  # the gateway is gone: its end is looked at below

    for kind in kinds:
        threading.Thread(target=run, args=(kind,), daemon=True).start()
    wait(lambda: all(counts[kind] >= 5 for kind in kinds), f"traffic of all: {counts}")


@pytest.mark.parametrize(
    ("kinds", "call"),
    [*(([kind], "fdatasync") for kind in CLIENTS), (list(CLIENTS), "fdatasync"), (list(CLIENTS), "pwritev")],
    ids=lambda value: value if isinstance(value, str) else value[0] if len(value) == 1 else "all",
)
def test_the_gateway_ends_in_time_whoever_waits(gateway: FaultyGateway, kinds: list[str], call: str) -> None:
    begin(gateway, kinds)
    gateway.shim.fail(call, errno.EIO)
    wait(lambda: "the log stopped" in gateway.log_text(), "failure")
    failed = time.monotonic()
    wait(lambda: not gateway.running, "end of the gateway")
    assert time.monotonic() - failed < DRAIN_TIMEOUT_S / 10
    assert gateway._process is not None and gateway._process.returncode == 1
    # The log says once why it failed; that others could not write any more is no news.
    assert "Traceback" not in gateway.log_text(), gateway.log_tail()
