"""Random histories of a publisher and a subscriber over drops, take-overs, stops and kills of the gateway.

Both clients keep the state that the specification asks of them and nothing else; every packet under way is
lost when a connection or the gateway goes. Whatever happens: QoS 2 arrives exactly once, QoS 1 at least
once, and first arrivals of one QoS are in the order of publishing.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.protocols.mqtt._deliver import forget_runs
from tests.reference import mqtt_frames as f
from tests.support.mqtt import Gateway, Peer

EXPIRY = b"\x11\0\0\x10\0"


class Publisher:
    """Sends numbered messages; keeps what is not acknowledged, in order."""

    def __init__(self) -> None:
        self.sent = 0
        self.next_id = 1
        self.open: dict[int, tuple[int, bytes]] = {}
        """Packet id -> (QoS, payload) not yet past PUBACK or PUBREC."""
        self.released: list[int] = []
        """Packet ids for which PUBREL was sent and PUBCOMP is awaited."""
        self.peer: Peer | None = None

    def connect(self, gateway: Gateway) -> None:
        self.peer = gateway.connect("pub", 5, clean=False, props=EXPIRY)
        for packet_id, (qos, payload) in self.open.items():
            self.write(packet_id, qos, payload, dup=True)
        for packet_id in self.released:
            self.peer.send(f.ack(f.PUBREL, packet_id), settle=False)

    def write(self, packet_id: int, qos: int, payload: bytes, *, dup: bool) -> None:
        assert self.peer is not None
        packet = f.publish(f"t/{qos}", payload, qos=qos, packet_id=packet_id, dup=dup, props=b"")
        self.peer.send(packet, settle=False)

    def publish(self, qos: int) -> None:
        packet_id, self.next_id = self.next_id, self.next_id % 40 + 1
        if packet_id in self.open or packet_id in self.released:
            return
        self.sent += 1
        self.open[packet_id] = (qos, self.sent.to_bytes(4, "big"))
        self.write(packet_id, *self.open[packet_id], dup=False)

    def read(self) -> None:
        assert self.peer is not None
        taken, self.peer.received = self.peer.received, []
        for packet in taken:
            packet_id, reason = f.parse_ack(packet, 5)
            assert reason in (0, 0x10) or (packet.kind == f.PUBCOMP and reason == 0x92)
            if packet.kind == f.PUBACK:
                self.open.pop(packet_id, None)
            elif packet.kind == f.PUBREC:
                self.open.pop(packet_id, None)
                if packet_id not in self.released:
                    self.released.append(packet_id)
                self.peer.send(f.ack(f.PUBREL, packet_id), settle=False)
            elif packet.kind == f.PUBCOMP and packet_id in self.released:
                self.released.remove(packet_id)

    @property
    def idle(self) -> bool:
        return not self.open and not self.released


class Subscriber:
    """Takes messages; keeps the ids of QoS 2 messages until PUBREL."""

    def __init__(self) -> None:
        self.got: dict[int, list[int]] = {1: [], 2: []}
        """QoS -> numbers as they came to the application."""
        self.holding: set[int] = set()
        self.peer: Peer | None = None

    def connect(self, gateway: Gateway) -> None:
        self.peer = gateway.connect("sub", 5, clean=False, props=EXPIRY + b"\x21\0\x07")

    def read(self, limit: int = 10**9) -> None:
        assert self.peer is not None
        taken, self.peer.received = self.peer.received[:limit], self.peer.received[limit:]
        for packet in taken:
            if packet.kind == f.PUBREL:
                packet_id, _ = f.parse_ack(packet, 5)
                self.holding.discard(packet_id)
                self.peer.send(f.ack(f.PUBCOMP, packet_id), settle=False)
                continue
            message = f.parse_publish(packet, 5)
            number = int.from_bytes(message.payload, "big")
            if message.qos == 1:
                self.got[1].append(number)
                self.peer.send(f.ack(f.PUBACK, message.packet_id), settle=False)
                continue
            if message.packet_id not in self.holding:
                self.holding.add(message.packet_id)
                self.got[2].append(number)
            self.peer.send(f.ack(f.PUBREC, message.packet_id), settle=False)


STEPS = st.sampled_from(
    ["publish 1", "publish 2", "publish 2", "settle", "settle", "pub reads", "sub reads", "sub reads one"]
    + ["time", "drop pub", "drop sub", "stop", "kill"]
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=5, max_size=60))
def test_qos_2_is_exactly_once_and_qos_1_at_least_once(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), steps)


def run(folder: Path, steps: list[str]) -> None:
    gateway = Gateway(folder / "0", fsync="group")
    publisher, subscriber = Publisher(), Subscriber()
    subscriber.connect(gateway)
    assert subscriber.peer is not None
    subscriber.peer.subscribe(("t/1", 1), ("t/2", 2))
    publisher.connect(gateway)
    generation = 0
    for step in [*steps, *["settle", "pub reads", "sub reads", "time"] * 40]:
        assert publisher.peer is not None and subscriber.peer is not None
        match step:
            case "publish 1":
                publisher.publish(1)
            case "publish 2":
                publisher.publish(2)
            case "settle":
                gateway.settle()
            case "pub reads":
                publisher.read()
            case "sub reads":
                subscriber.read()
            case "sub reads one":
                subscriber.read(1)
            case "time":
                gateway.advance(0.06)
            case "drop pub":
                publisher.peer.session.lost()
                publisher.connect(gateway)
            case "drop sub":
                # A take-over: the old connection is still there.
                subscriber.connect(gateway)
            case "stop" | "kill":
                generation += 1
                if step == "stop":
                    publisher.peer.session.lost()
                    subscriber.peer.session.lost()
                    gateway = gateway.restart()
                else:
                    old = gateway
                    gateway = old.crash(folder / str(generation))
                    old.stop()
                    shutil.rmtree(old.folder)
                subscriber.connect(gateway)
                publisher.connect(gateway)
    assert publisher.idle
    everything = range(1, publisher.sent + 1)
    by_qos = subscriber.got[1] + subscriber.got[2]
    assert sorted(set(by_qos)) == list(everything)
    assert len(subscriber.got[2]) == len(set(subscriber.got[2]))
    for qos in (1, 2):
        first = list(dict.fromkeys(subscriber.got[qos]))
        assert first == sorted(first)
    assert not subscriber.holding
    forget_runs()
    gateway.stop()
