"""Bridges over kills: python -m tests.crash.bridges [--protocol mqttv50] [--tls] [--other-too] [--gateways].

Publishers send messages of QoS 1 and 2 to the gateway, from where a bridge brings them to Mosquitto, and to
Mosquitto, from where it brings them to the gateway. The gateway is killed by SIGKILL meanwhile and started
again, with --other-too in turn with Mosquitto. That one ends in order, since version 2.0 writes its
sessions at its end only. Then each confirmed message must have arrived, and those of QoS 2 once.

With --gateways the other broker is a gateway, too, which is killed likewise. Many more messages are under way
then, and no message of QoS 2 may come twice.

Mosquitto 2.0.11 doubles messages of QoS 2 when it starts again, also for a subscriber without a bridge, which
the stream `beside` counts. So a recorder stands between bridge and Mosquitto. A message that comes from there
may arrive as often as Mosquitto has delivered it, and no more. The bridge must deliver each message once.
Exit code 0 only when that holds.
"""

from __future__ import annotations

import argparse
import random
import ssl
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.crash.streams import MqttStream
from tests.crash.wire_record import WireRecord
from tests.support.brokers import Broker, Gateway, Mosquitto, free_port
from tests.support.certificates import Authority
from tests.support.data_plane import until
from tests.support.management import SETTINGS

_LIMIT_S = 300.0
_UNDER_WAY = 20
_MANY = 2000
"""Under way of each publisher between gateways."""
_BESIDE = "beside"
"""A stream that Mosquitto alone brings from a publisher to a subscriber."""


@dataclass
class Report:
    """The result of a run."""

    confirmed: int
    lost: int
    twice: dict[str, int]
    """Messages that came again, by stream."""
    broker_again: int
    """Messages of QoS 2 that the other broker delivered again to the bridge after it had released them."""
    bridge_again: int
    """Messages of QoS 2 that the bridge delivered again to the other broker."""
    doubled: int
    """Those of `in2` that arrived more often than the other broker has delivered them."""
    failures: str
    kills: int
    took_s: float
    between_gateways: bool

    @property
    def ok(self) -> bool:
        """Whether each confirmed message arrived, and the link doubled none of QoS 2."""
        doubled = self.bridge_again + self.doubled
        if self.between_gateways:
            doubled += self.twice["out2"] + self.twice["in2"]
        return self.confirmed > 0 and self.lost == 0 and doubled == 0 and not self.failures


def run(
    folder: Path, *, kills: int, seed: int, protocol: str, tls: bool, other_too: bool, gateways: bool
) -> Report:
    """Bridge, and compare."""
    chance = random.Random(seed)
    # All that waits, waits: by default a Mosquitto drops what is more than 1,000.
    options = ("max_queued_messages 0", f"max_inflight_messages {_UNDER_WAY}")
    context, security = None, ""
    if tls:
        authority = Authority(folder)
        server = authority.server()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(server.cert, server.key)
        security = f', tls = true, cafile = "{authority.file}"'
    other: Broker = Mosquitto(folder / "mosquitto", persistence=True, options=options)
    window = _UNDER_WAY
    if gateways:
        other, window = Gateway(folder / "other"), _MANY
    topics = ", ".join(f'"{way}{qos}/# {way} {qos}"' for way in ("out", "in") for qos in (1, 2))
    record = WireRecord(other.mqtt_port, mqtt5=protocol == "mqttv50", tls=context)
    bridge = (
        f'{{name = "kills", address = "localhost:{record.port}", topics = [{topics}], '
        f'protocol_version = "{protocol}", restart_timeout = 1{security}}}'
    )
    settings = {**SETTINGS, "links.bridges": f"[{bridge}]"}
    ports = free_port(), free_port()
    with other, record, Gateway(folder / "gateway", settings=settings, ports=ports) as gateway:
        until(lambda: "a link runs" in gateway.log_text(), _LIMIT_S)
        streams = [
            MqttStream(
                f"{way}{qos}",
                source.mqtt_port,
                qos,
                window=window,
                subscriber_port=target.mqtt_port,
                topic=f"{way}{qos}/a",
            )
            for way, source, target in (("out", gateway, other), ("in", other, gateway))
            for qos in (1, 2)
        ]
        if other_too and not gateways:
            streams.append(MqttStream(_BESIDE, other.mqtt_port, 2, window=_UNDER_WAY))
        for stream in streams:
            stream.start()
        began = time.monotonic()
        for number in range(kills):
            time.sleep(chance.uniform(0.5, 2.0))
            broker: Broker = (gateway, other)[number % 2] if other_too else gateway
            if isinstance(broker, Gateway):
                broker.kill9()
            else:
                broker.terminate()
            broker.start()
        for stream in streams:
            stream.finish_publishing()

        def arrived() -> bool:
            return all(stream.history.acked <= _numbers(stream).keys() for stream in streams)

        try:
            until(arrived, _LIMIT_S)
        except AssertionError:
            print(gateway.log_tail(60))  # the report says what is lost
        took_s = time.monotonic() - began
        for stream in streams:
            stream.stop()
        (incoming,) = (_numbers(stream) for stream in streams if stream.name == "in2")
        deliveries = record.by_broker.by_number
    return Report(
        confirmed=sum(len(stream.history.acked) for stream in streams),
        lost=sum(len(stream.history.acked - _numbers(stream).keys()) for stream in streams),
        twice={stream.name: sum(count - 1 for count in _numbers(stream).values()) for stream in streams},
        broker_again=record.by_broker.again,
        bridge_again=record.by_bridge.again,
        doubled=sum(max(count - deliveries[number], 0) for number, count in incoming.items()),
        failures="".join(stream.failure for stream in streams),
        kills=kills,
        took_s=took_s,
        between_gateways=gateways,
    )


def _numbers(stream: MqttStream) -> dict[int, int]:
    """How often each message has arrived, by number."""
    found: dict[int, int] = {}
    for receipt in list(stream.history.receipts):
        found[receipt.sequence] = found.get(receipt.sequence, 0) + 1
    return found


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.bridges")
    parser.add_argument("--kills", type=int, default=20, help="of the gateway")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--protocol", default="mqttv311", choices=("mqttv311", "mqttv50"))
    parser.add_argument(
        "--other-too", action="store_true", help="end the other broker in turn with the gateway"
    )
    parser.add_argument("--gateways", action="store_true", help="the other broker is a gateway, too")
    parser.add_argument("--tls", action="store_true", help="the bridge connects with TLS")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bridges-") as folder:
        report = run(
            Path(folder),
            kills=options.kills,
            seed=options.seed,
            protocol=options.protocol,
            tls=options.tls,
            other_too=options.other_too,
            gateways=options.gateways,
        )
    print(report)
    print("PASS" if report.ok else "FAIL")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
