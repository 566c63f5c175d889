"""Bridges over kills: python -m tests.crash.bridges [--messages N] [--kills N] [--protocol mqttv50].

A publisher sends messages of QoS 2 to the gateway. A bridge brings them to a Mosquitto, and another topic of
it brings back what a second publisher sends there. Both are ended and started again meanwhile: Mosquitto in
order, since version 2.0 writes its sessions at its end only, the gateway by SIGKILL, or with --orderly as
well. Then each confirmed message must have arrived. Exit code 0 only when that holds.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import paho.mqtt.client as paho

from tests.support.brokers import Broker, Gateway, Mosquitto, free_port
from tests.support.data_plane import until
from tests.support.management import SETTINGS

_LIMIT_S = 300.0
_UNDER_WAY = 20


@dataclass
class Report:
    """The result of a run."""

    confirmed: int
    lost: int
    twice: list[int]
    """Out and in."""
    kills: int
    orderly: bool
    took_s: float

    @property
    def ok(self) -> bool:
        """Whether each confirmed message arrived."""
        return self.lost == 0


class Publisher:
    """Sends numbers with QoS 2 to a topic of a broker, over its restarts; less than 65,535 of them."""

    def __init__(self, broker: Broker, topic: str, count: int) -> None:
        self.confirmed: set[int] = set()
        self._topic = topic
        self._count = count
        self._next = 0
        self._client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, f"publisher-{topic}", clean_session=False
        )
        self._client.max_inflight_messages_set(_UNDER_WAY)
        self._client.reconnect_delay_set(1, 1)
        self._client.on_publish = self._on_publish
        self._client.connect("127.0.0.1", broker.mqtt_port)
        self._client.loop_start()

    @property
    def done(self) -> bool:
        """Whether all are confirmed."""
        return len(self.confirmed) == self._count

    def work(self) -> None:
        """Send what may be under way."""
        while self._next < self._count and self._next - len(self.confirmed) < 10 * _UNDER_WAY:
            self._client.publish(self._topic, b"%d" % self._next, 2)
            self._next += 1

    def _on_publish(self, _: object, __: object, mid: int, ___: object, ____: object) -> None:
        self.confirmed.add(mid - 1)  # paho's ids begin at 1

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Subscriber:
    """Counts what comes with QoS 2, over restarts of its broker."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.received: Counter[int] = Counter()
        subscribed = threading.Event()
        self._client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, f"subscriber-{topic}", clean_session=False
        )
        self._client.on_message = lambda _, __, message: self.received.update([int(message.payload)])
        self._client.on_subscribe = lambda *_: subscribed.set()
        self._client.reconnect_delay_set(1, 1)
        self._client.connect("127.0.0.1", broker.mqtt_port)
        self._client.loop_start()
        self._client.subscribe(topic, 2)
        assert subscribed.wait(_LIMIT_S)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def run(folder: Path, *, messages: int, kills: int, seed: int, protocol: str, orderly: bool) -> Report:
    """Bridge, and compare."""
    chance = random.Random(seed)
    # All that waits, waits: by default a Mosquitto drops what is more than 1,000.
    other = Mosquitto(folder / "mosquitto", persistence=True, options=("max_queued_messages 0",))
    bridge = (
        f'{{name = "kills", address = "127.0.0.1:{other.mqtt_port}", topics = ["out/# out 2", "in/# in 2"], '
        f'protocol_version = "{protocol}", restart_timeout = 1}}'
    )
    settings = {**SETTINGS, "links.bridges": f"[{bridge}]"}
    ports = free_port(), free_port()
    with other, Gateway(folder / "gateway", settings=settings, ports=ports) as gateway:
        ways = [
            (Subscriber(other, "out/#"), Publisher(gateway, "out/a", messages)),
            (Subscriber(gateway, "in/#"), Publisher(other, "in/a", messages)),
        ]
        until(lambda: "a link runs" in gateway.log_text(), _LIMIT_S)
        began = time.monotonic()
        stopping = threading.Event()

        def work() -> None:
            while not stopping.is_set():
                for _, publisher in ways:
                    publisher.work()
                time.sleep(0.002)

        thread = threading.Thread(target=work)
        thread.start()
        for number in range(kills):
            time.sleep(chance.uniform(0.5, 2.0))
            broker: Broker = (gateway, other)[number % 2]
            if broker is gateway and not orderly:
                broker.kill9()
            else:
                broker.terminate()
            broker.start()

        def arrived() -> bool:
            return all(
                publisher.done and publisher.confirmed <= subscriber.received.keys()
                for subscriber, publisher in ways
            )

        try:
            until(arrived, _LIMIT_S)
        except AssertionError:
            print(gateway.log_tail(60))  # the report says what is lost
            for subscriber, publisher in ways:
                print(len(publisher.confirmed), len(subscriber.received))
        stopping.set()
        thread.join()
        took_s = time.monotonic() - began
        for subscriber, publisher in ways:
            publisher.close()
            subscriber.close()
    return Report(
        confirmed=sum(len(publisher.confirmed) for _, publisher in ways),
        lost=sum(len(publisher.confirmed - subscriber.received.keys()) for subscriber, publisher in ways),
        twice=[subscriber.received.total() - len(subscriber.received) for subscriber, _ in ways],
        kills=kills,
        orderly=orderly,
        took_s=took_s,
    )


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.bridges")
    parser.add_argument("--messages", type=int, default=5_000, help="each way")
    parser.add_argument("--kills", type=int, default=20, help="of the gateway and Mosquitto in turn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--protocol", default="mqttv311", choices=("mqttv311", "mqttv50"))
    parser.add_argument("--orderly", action="store_true", help="end the gateway by SIGTERM")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bridges-") as folder:
        report = run(
            Path(folder),
            messages=options.messages,
            kills=options.kills,
            seed=options.seed,
            protocol=options.protocol,
            orderly=options.orderly,
        )
    print(report)
    print("PASS" if report.ok else "FAIL")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
