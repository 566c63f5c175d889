"""Alarms: publishers wait and are told, consumers go on, and nobody takes anybody for dead meanwhile."""

from __future__ import annotations

import queue
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import paho.mqtt.client as paho
import pika
import pytest

from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S

pytestmark = [pytest.mark.penstock_only("this is about penstock's alarms")]

MIB = 2**20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 96 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96m", "none", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"this user cannot make a small file system: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def gateway_on(disk: Path, folder: Path) -> Iterator[Gateway]:
    settings = {
        "log.data_dir": str(disk / "d"),
        "log.segment_bytes": "1MiB",
        "log.min_free_bytes": "32MiB",
        "amqp.heartbeat_s": "2",
    }
    gateway = Gateway(folder, settings=settings)
    gateway.data_dir = disk / "d"
    with gateway:
        yield gateway


class Publisher(threading.Thread):
    """A pika connection in a thread that publishes when told to, and what it hears."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(daemon=True)
        self.heard: queue.Queue[str] = queue.Queue()
        self.work: queue.Queue[bytes | None] = queue.Queue()
        self.failed: BaseException | None = None
        self._name = name
        self._connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=2))
        blocked, unblocked = self._blocked, self._unblocked
        self._connection.add_on_connection_blocked_callback(blocked)
        self._connection.add_on_connection_unblocked_callback(unblocked)
        self._channel = self._connection.channel()
        self._channel.queue_declare(name)
        self.start()

    def _blocked(self, _: object, frame: object) -> None:
        self.heard.put(f"blocked: {frame.method.reason}")  # type: ignore[attr-defined]

    def _unblocked(self, *_: object) -> None:
        self.heard.put("unblocked")

    def run(self) -> None:
        try:
            while True:
                self._connection.process_data_events(0.02)
                try:
                    body = self.work.get_nowait()
                except queue.Empty:
                    continue
                if body is None:
                    self._connection.close()
                    return
                self._channel.basic_publish("", self._name, body)
        except BaseException as error:
            self.failed = error


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_full_disk_blocks_publishers_until_there_is_room(disk: Path, tmp_path: Path, unique: str) -> None:
    with gateway_on(disk, tmp_path / "gateway") as gateway:
        parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, heartbeat=2)
        publisher = Publisher(gateway.amqp_port, unique)
        publisher.work.put(b"first")
        with closing(pika.BlockingConnection(parameters)) as consumer:
            channel = consumer.channel()
            wait_for(lambda: channel.queue_declare(unique, passive=True).method.message_count == 1)
            filler = disk / "filler"
            filler.write_bytes(bytes(70 * MIB))  # less is free now than must stay
            wait_for(lambda: "publishers wait: the disk is nearly full" in gateway.log_text())
            publisher.work.put(b"second")
            assert publisher.heard.get(timeout=LIMIT_S) == "blocked: low on disk"
            # Longer than two heartbeats of 2 s, in which the publisher's socket is not read: nobody gives up.
            # A consumer is served all the while.
            end = time.monotonic() + 5.5
            while time.monotonic() < end:
                method, _, body = channel.basic_get(unique)
                assert body == b"first"
                channel.basic_nack(method.delivery_tag)
                consumer.process_data_events(0.1)
            assert channel.queue_declare(unique, passive=True).method.message_count == 1
            filler.unlink()
            assert publisher.heard.get(timeout=LIMIT_S) == "unblocked"
            wait_for(lambda: channel.queue_declare(unique, passive=True).method.message_count == 2)
            publisher.work.put(None)
            publisher.join(LIMIT_S)
            assert publisher.failed is None and publisher.heard.empty()
        assert "missed heartbeats" not in gateway.log_text()


def test_an_mqtt_publisher_waits_for_its_acknowledgement_and_stays(
    disk: Path, tmp_path: Path, unique: str
) -> None:
    with gateway_on(disk, tmp_path / "gateway") as gateway:
        client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5, reconnect_on_failure=False
        )
        events: queue.Queue[str] = queue.Queue()
        client.on_disconnect = lambda *_: events.put("disconnected")
        client.on_publish = lambda *_: events.put("acknowledged")
        client.connect("127.0.0.1", gateway.mqtt_port, keepalive=2)
        client.loop_start()
        client.publish(unique, b"x", 1)
        assert events.get(timeout=LIMIT_S) == "acknowledged"
        filler = disk / "filler"
        filler.write_bytes(bytes(70 * MIB))
        wait_for(lambda: "publishers wait: the disk is nearly full" in gateway.log_text())
        client.publish(unique, b"y", 1)
        with pytest.raises(queue.Empty):
            events.get(
                timeout=5.5
            )  # longer than 1.5 keep-alives of 2 s, and than the client waits for a ping
        filler.unlink()
        assert events.get(timeout=LIMIT_S) == "acknowledged"
        client.disconnect()
        assert events.get(timeout=LIMIT_S) == "disconnected"
        client.loop_stop()


def test_memory_above_the_watermark_blocks_publishers_and_serves_consumers(
    tmp_path: Path, unique: str
) -> None:
    # Python alone takes more than 16 MiB, so the alarm holds from the first check on.
    with Gateway(tmp_path, settings={"server.memory_high_watermark": "16MiB"}) as gateway:
        wait_for(lambda: "publishers wait" in gateway.log_text())
        publisher = Publisher(gateway.amqp_port, unique)
        publisher.work.put(b"one that begins to publish is blocked then")
        assert publisher.heard.get(timeout=LIMIT_S) == "blocked: low on memory"
        parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)
        with closing(pika.BlockingConnection(parameters)) as consumer:
            channel = consumer.channel()
            assert channel.queue_declare(unique, passive=True).method.message_count == 0
            assert channel.basic_get(unique, auto_ack=True)[0] is None
        publisher.work.put(None)
        assert "bytes of memory are in use" in gateway.log_text()
        assert "the caches of the log may take more than half" in gateway.log_text()


def test_heartbeats_are_answered_under_full_load(tmp_path: Path, unique: str) -> None:
    """A client with a heartbeat of a second, while others publish as fast as they are read."""
    with Gateway(tmp_path) as gateway:
        stop = threading.Event()
        sent: list[int] = []

        def flood() -> None:
            body = bytes(1000)
            topic = len(unique).to_bytes(2, "big") + unique.encode()
            size = len(topic + body)
            packets = (b"\x30" + bytes([size % 128 | 128, size // 128]) + topic + body) * 500
            with socket.create_connection(("127.0.0.1", gateway.mqtt_port), timeout=LIMIT_S) as client:
                client.sendall(b"\x10\x0c\0\4MQTT\4\2\0<\0\0")
                while not stop.is_set():
                    client.sendall(packets)
                    sent.append(len(packets))

        floods = [threading.Thread(target=flood) for _ in range(3)]
        parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, heartbeat=1)
        with closing(pika.BlockingConnection(parameters)) as idle:
            channel = idle.channel()
            channel.queue_declare(unique)
            channel.queue_bind(unique, "amq.topic", unique)
            for thread in floods:
                thread.start()
            end = time.monotonic() + 5
            while time.monotonic() < end or sum(sent) < 20_000_000:  # there is a load, for so long
                idle.process_data_events(0.1)  # raises when the gateway closed, or was silent for too long
            stop.set()
            for thread in floods:
                thread.join()
            wait_for(lambda: channel.queue_declare(unique, passive=True).method.message_count > 10_000)
        assert "missed heartbeats" not in gateway.log_text()


def test_consumed_messages_are_deleted_for_new_ones(disk: Path, tmp_path: Path) -> None:
    """Replay is kept for 24 hours or 10 GiB, of which the disk has a hundredth."""
    with gateway_on(disk, tmp_path / "gateway") as gateway:
        parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, heartbeat=0)
        with closing(pika.BlockingConnection(parameters)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("q", durable=True)
            channel.queue_declare("kept", durable=True)
            durable = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", "kept", b"for whom it waits", durable)
            for number in range(90):
                channel.basic_publish("", "q", bytes([number]) * MIB, durable)
                got = channel.basic_get("q", auto_ack=True)
                assert got[2] is not None and got[2][:1] == bytes([number])
        assert "the oldest traffic gives way" in gateway.log_text(), gateway.log_tail()
        gateway.restart()
        with closing(pika.BlockingConnection(parameters)) as connection:
            assert connection.channel().basic_get("kept", auto_ack=True)[2] == b"for whom it waits"
