"""A subscriber of QoS 0 that does not read cannot hold the log; one that was promised something keeps it."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S

pytestmark = pytest.mark.penstock_only("this is about penstock's log")

MIB = 1 << 20
LAG = 8 * MIB
SENT = 64 * MIB
BODY = random.Random(1).randbytes(65536)  # nothing compresses it


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    settings = {
        "log.segment_bytes": "1MiB",
        "log.traffic_retention_bytes": "2MiB",
        "log.traffic_retention_s": "1",
        "log.checkpoint_bytes": "2MiB",
        "mqtt.max_lag_bytes": str(LAG),
        "server.output_buffer_bytes": "65536",
    }
    with Gateway(tmp_path, settings=settings) as running:
        yield running


def wait(condition: Callable[[], bool], gateway: Gateway) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, gateway.log_tail()
        time.sleep(0.05)


def silent_subscriber(gateway: Gateway, qos: int) -> socket.socket:
    """Subscribes to "t" and reads nothing more."""
    client = socket.create_connection(("127.0.0.1", gateway.mqtt_port), timeout=LIMIT_S)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.sendall(b"\x10\x0f\0\4MQTT\4\2\0\0\0\3lag")
    assert client.recv(4) == b"\x20\x02\0\0"
    client.sendall(b"\x82\x06\0\1\0\1t" + bytes([qos]))
    assert client.recv(5) == b"\x90\x03\0\1" + bytes([qos])
    return client


def publish(gateway: Gateway, nbytes: int) -> None:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.max_inflight_messages_set(100)
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.loop_start()
    for _ in range(nbytes // 65536):
        sent = client.publish("t", BODY, 1)
    sent.wait_for_publish(LIMIT_S)
    client.disconnect()
    client.loop_stop()


def held(gateway: Gateway) -> int:
    total = 0
    for path in gateway.data_dir.rglob("*.wal"):
        with suppress(FileNotFoundError):  # deleted in the meantime
            total += path.stat().st_size
    return total


def test_a_subscriber_of_qos_0_that_never_reads_does_not_hold_the_log(gateway: Gateway) -> None:
    with silent_subscriber(gateway, 0):
        publish(gateway, SENT)

        def is_bounded() -> bool:
            publish(gateway, MIB // 4)  # segments go while others come
            return held(gateway) <= LAG + 16 * MIB

        wait(is_bounded, gateway)
        assert gateway.log_text().count("messages of QoS 0 dropped: the client does not read them") >= 1
        assert gateway.log_text().count("messages of QoS 0 dropped") <= 12, "not for each message"


def test_a_subscriber_of_qos_1_keeps_what_it_was_promised(gateway: Gateway) -> None:
    with silent_subscriber(gateway, 1):
        publish(gateway, SENT)
        publish(gateway, 2 * MIB)
        assert held(gateway) >= SENT
        assert "dropped" not in gateway.log_text()
