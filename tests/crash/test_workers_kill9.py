"""Kill -9 of each of two workers while clients of every protocol publish to both: nothing confirmed is lost,
and who uses the other worker's vhost notices nothing.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import paho.mqtt.client as paho
import pika
import pika.exceptions
import pytest

import penstock.sync
from penstock.errors import PenstockError
from tests.support.brokers import Gateway
from tests.support.management import SETTINGS, Api
from tests.support.workers import WAIT_S, amqp, pids, until

pytestmark = [pytest.mark.penstock_only("this is about penstock's processes")]

VHOSTS = ("/", "b")
"""By the number of their worker."""
AT_LEAST = 20
"""Messages that each load has confirmed before the kill, and again after it."""

Publish = Callable[[bytes], object]
"""Publishes a body, and returns when it is confirmed."""


class Broken(Exception):
    """The connection is gone."""


@contextmanager
def by_amqp(gateway: Gateway, vhost: str) -> Iterator[Publish]:
    connection = amqp(gateway, vhost)
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        kept = pika.BasicProperties(delivery_mode=2)
        yield lambda body: channel.basic_publish("", "by_amqp", body, kept, mandatory=True)
    finally:
        if connection.is_open:
            connection.close()


@contextmanager
def by_mqtt(gateway: Gateway, vhost: str) -> Iterator[Publish]:
    connected, lost = threading.Event(), threading.Event()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "load", reconnect_on_failure=False)
    client.username_pw_set(f"{vhost}:guest", "guest")
    client.on_connect = lambda *_: connected.set()
    client.on_disconnect = lambda *_: lost.set()

    def publish(body: bytes) -> None:
        sent = client.publish("by_mqtt", body, 1)
        while not sent.is_published():
            if lost.is_set():
                raise Broken
            sent.wait_for_publish(0.1)

    client.connect("127.0.0.1", gateway.mqtt_port)
    client.loop_start()
    try:
        while not connected.wait(0.1):
            if lost.is_set():
                raise Broken
        yield publish
    finally:
        client.disconnect()
        client.loop_stop()


@contextmanager
def by_http(gateway: Gateway, vhost: str) -> Iterator[Publish]:
    url = f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/{vhost.replace('/', '%2F')}"
    with httpx.Client(auth=("guest", "guest"), timeout=WAIT_S) as client:

        def publish(body: bytes) -> None:
            answer = client.post(f"{url}/queues/by_http/messages", content=body)
            if answer.status_code == 503:
                raise Broken
            assert answer.status_code == 200, answer.text

        yield publish


@contextmanager
def by_native(gateway: Gateway, vhost: str) -> Iterator[Publish]:
    with native(gateway, vhost) as client, client.producer("by_native", create=True) as producer:
        yield producer.send


def native(gateway: Gateway, vhost: str) -> penstock.sync.Client:
    name = "" if vhost == "/" else vhost
    return penstock.sync.connect(f"penstock://guest:guest@127.0.0.1:{gateway.ports['native']}/{name}")


WAYS: tuple[Callable[[Gateway, str], AbstractContextManager[Publish]], ...] = (
    by_amqp,
    by_mqtt,
    by_http,
    by_native,
)
ENDS = (
    Broken,
    OSError,
    pika.exceptions.AMQPError,
    httpx.TransportError,
    PenstockError,
    RuntimeError,
    ValueError,
)
"""The errors that end a connection; the last two are texts of paho."""


@dataclass(eq=False)
class Load:
    """Publishes numbers one by one, over as many connections as it takes."""

    gateway: Gateway
    way: Callable[[Gateway, str], AbstractContextManager[Publish]]
    vhost: str

    def __post_init__(self) -> None:
        self.confirmed: list[int] = []
        self.failed: Exception | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            number = 0
            while not self._ended.is_set():
                try:
                    with self.way(self.gateway, self.vhost) as publish:
                        while not self._ended.is_set():
                            number += 1
                            publish(b"%d" % number)
                            self.confirmed.append(number)
                except ENDS:
                    self._ended.wait(0.05)
        except Exception as error:
            self.failed = error

    def end(self) -> None:
        self._ended.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive() and self.failed is None, (self.way, self.vhost, self.failed)

    def found(self) -> set[int]:
        """The messages present at the end."""
        name = self.way.__name__
        if name == "by_native":
            with native(self.gateway, self.vhost) as client:
                count = client.admin.describe(name)["messages"]
                with client.subscribe(name, "all", start="earliest") as consumer:
                    got: list[int] = []
                    while len(got) < count:
                        got += [int(one.body) for one in consumer.receive_many(count - len(got), WAIT_S)]
            return set(got)
        with closing(amqp(self.gateway, self.vhost)) as connection:
            channel = connection.channel()
            bodies = set()
            while (answer := channel.basic_get(name, auto_ack=True))[0] is not None:
                bodies.add(int(answer[2]))
        return bodies


def test_nothing_confirmed_is_lost_and_the_other_vhost_goes_on(tmp_path: Path) -> None:
    settings = {
        **SETTINGS,
        "server.workers": "2",
        "http.listen": "127.0.0.1:0",
        "native.listen": "127.0.0.1:0",
    }
    with Gateway(tmp_path / "workers", settings=settings) as gateway, closing(Api(gateway)) as api:
        assert api.status("PUT", "vhosts/b") == 201
        for vhost in VHOSTS:
            with closing(amqp(gateway, vhost)) as connection:
                channel = connection.channel()
                for name in ("by_amqp", "by_mqtt", "by_http"):
                    channel.queue_declare(name, durable=True)
                channel.queue_bind("by_mqtt", "amq.topic", "by_mqtt")
        loads = [Load(gateway, way, vhost) for vhost in VHOSTS for way in WAYS]

        def all_confirm() -> None:
            marks = [(load, len(load.confirmed) + AT_LEAST) for load in loads]
            until(lambda: all(load.failed or len(load.confirmed) >= mark for load, mark in marks), gateway)

        def connections(vhost: str) -> set[str]:
            with closing(Api(gateway)) as fresh:  # a worker that is killed takes its connections along
                return {one["name"] for one in fresh.get("connections") if one["vhost"] == vhost}

        try:
            for victim in (1, 0):
                all_confirm()
                other = VHOSTS[1 - victim]
                before = connections(other)
                assert len(before) >= 3
                first = pids(gateway)[victim]
                os.kill(first, signal.SIGKILL)
                until(lambda: pids(gateway)[victim] != first, gateway)  # noqa: B023  (waited for here)
                all_confirm()
                assert before <= connections(other), gateway.log_tail()
                assert f"worker {victim} ended with signal 9: its vhosts pause" in gateway.log_text()
        finally:
            for load in loads:
                load.end()
        for load in loads:
            assert set(load.confirmed) <= load.found(), (load.way, load.vhost)
