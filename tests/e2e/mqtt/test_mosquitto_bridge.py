"""A bridge of Mosquitto, configured as its manual shows: it connects, and each message passes once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from tests.support.brokers import Gateway, Mosquitto
from tests.support.limits import LIMIT_S

pytestmark = pytest.mark.penstock_only("a bridge between Mosquitto and penstock")


class Client:
    """Remembers what it gets."""

    def __init__(self, port: int, topic: str = "#", client_id: str = "") -> None:
        """With a client id its session stays when it is closed."""
        self.got: Counter[tuple[str, bytes]] = Counter()
        self.retained: set[str] = set()
        self._lock = threading.Lock()
        subscribed = threading.Event()
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, clean_session=not client_id)
        self._client.on_message = self._came
        self._client.on_subscribe = lambda *_: subscribed.set()
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        self._client.subscribe([(topic, 2)])
        assert subscribed.wait(LIMIT_S)

    def _came(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        with self._lock:
            self.got[message.topic, message.payload] += 1
            if message.retain:
                self.retained.add(message.topic)

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        self._client.publish(topic, payload, 2, retain=retain).wait_for_publish(LIMIT_S)

    def wait(self, topic: str, payload: bytes) -> None:
        wait(lambda: self.got[topic, payload] > 0, f"{topic} {payload!r}")

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {LIMIT_S} s: {what}"
        time.sleep(0.01)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "penstock") as running:
        yield running


@pytest.fixture(params=["", "bridge_protocol_version mqttv50", "bridge_protocol_version mqttv31"])
def bridged(request: pytest.FixtureRequest, gateway: Gateway, tmp_path: Path) -> Iterator[Mosquitto]:
    """Mosquitto with a bridge to the gateway: notifications and try_private are on by default."""
    options = (
        "connection plant",
        f"address 127.0.0.1:{gateway.mqtt_port}",
        "topic both/# both 1",
        "topic in/# in 1",
        "topic out/# out 1",
        *filter(None, [request.param]),
    )
    broker = Mosquitto(tmp_path / "mosquitto", options=options)
    (tmp_path / "mosquitto").mkdir(exist_ok=True)
    with broker:
        yield broker


def test_each_message_passes_once(gateway: Gateway, bridged: Mosquitto) -> None:
    near, far = Client(gateway.mqtt_port), Client(bridged.mqtt_port)
    # The bridge is up when something passes.
    wait(lambda: "connection opened" in gateway.log_text() and "plant" in gateway.log_text(), "the bridge")
    near.publish("in/up", b"0")
    deadline = time.monotonic() + LIMIT_S
    while not far.got["in/up", b"0"]:
        assert time.monotonic() < deadline, gateway.log_tail()
        near.publish("in/up", b"0")
        time.sleep(0.1)
    near.publish("in/x", b"1")
    far.publish("out/x", b"2")
    near.publish("both/x", b"3")
    far.publish("both/x", b"4")
    near.publish("both/last", b"5")
    far.publish("both/last", b"6")
    far.wait("in/x", b"1")
    near.wait("out/x", b"2")
    for client in (near, far):
        for payload in (b"3", b"4"):
            client.wait("both/x", payload)
        for payload in (b"5", b"6"):
            client.wait("both/last", payload)
    # A looped message would have come before the last ones.
    for client in (near, far):
        for topic in ("both/x", "both/last", "in/x", "out/x"):
            assert all(count == 1 for (one, _), count in client.got.items() if one == topic), client.got
    near.close()
    far.close()
    assert "refused" not in gateway.log_text()


def test_the_state_of_a_bridge_is_told(gateway: Gateway, bridged: Mosquitto) -> None:
    """Retained "1" while it is connected, "0" by its will when it is gone."""
    import subprocess

    def state() -> bytes:
        words = ["mosquitto_sub", "-p", str(gateway.mqtt_port), "-C", "1", "-W", "5"]
        return subprocess.run(
            [*words, "-t", "$SYS/broker/connection/+/state"], capture_output=True, check=False
        ).stdout.strip()

    wait(lambda: state() == b"1", "the state 1")
    bridged.kill9()
    wait(lambda: state() == b"0", "the state 0")
