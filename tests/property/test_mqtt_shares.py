"""Random histories of a group: members that come, go, acknowledge or not, over stops and kills of the
gateway.

In any history every message reaches a member. At QoS 2 it reaches exactly one, once. A second delivery
at QoS 1 comes only after a fault.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocols.mqtt.codec._shared_packets import forget_runs
from penstock.protocols.mqtt.options import MqttOptions
from tests.reference import mqtt_frames as f
from tests.support.examples import histories
from tests.support.mqtt import Gateway, Peer

EXPIRY = b"\x11\0\0\x10\0"
FILTER = "$share/g/t/#"
MEMBERS = 3


class Member:
    """A client with a session that stays; it keeps what the specification asks of it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.got: list[int] = []
        self.holding: set[int] = set()
        """Packet ids of QoS 2 messages not yet released."""
        self.peer: Peer | None = None

    def connect(self, gateway: Gateway) -> None:
        self.peer = gateway.connect(f"m{self.index}", 5, clean=False, props=EXPIRY + b"\x21\0\x03")
        if not self.peer.session_present:
            self.peer.subscribe((FILTER, 2))

    def drop(self) -> None:
        if self.peer is not None:
            self.peer.session.lost()
            self.peer = None

    def read(self, limit: int) -> None:
        if self.peer is None:
            return
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
                self.got.append(number)
                self.peer.send(f.ack(f.PUBACK, message.packet_id), settle=False)
                continue
            if message.packet_id not in self.holding:
                self.holding.add(message.packet_id)
                self.got.append(number)
            self.peer.send(f.ack(f.PUBREC, message.packet_id), settle=False)


STEPS = st.one_of(
    st.tuples(st.sampled_from(["publish 1", "publish 2", "publish 2", "settle", "time"]), st.just(0)),
    st.tuples(
        st.sampled_from(["connect", "drop", "read", "read one", "read one"]), st.integers(0, MEMBERS - 1)
    ),
    st.tuples(st.sampled_from(["stop", "kill"]), st.just(0)),
)


STRATEGIES = st.sampled_from(["round-robin", "hash-topic", "hash-clientid", "sticky"])


@settings(max_examples=histories(80))
@given(STRATEGIES, st.lists(STEPS, min_size=5, max_size=60))
def test_every_message_reaches_a_member_and_at_qos_2_one_member_once(
    strategy: str, steps: list[tuple[str, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), strategy, steps)


def run(folder: Path, strategy: str, steps: list[tuple[str, int]]) -> None:
    gateway = Gateway(folder / "0", MqttOptions(shared_strategy_of=[f"g={strategy}"]), fsync="group")
    members = [Member(i) for i in range(MEMBERS)]
    for member in members:
        member.connect(gateway)
    publisher = gateway.connect("pub", 5)
    sent: dict[int, int] = {}
    generation = 0
    faults = False

    def publish(qos: int) -> None:
        number = len(sent) + 1
        sent[number] = qos
        publisher.publish(f"t/{qos}", number.to_bytes(4, "big"), qos=qos, packet_id=number)
        # Acknowledged: from here on it is the gateway's.
        assert any(p.kind in (f.PUBACK, f.PUBREC) for p in publisher.take())
        if qos == 2:
            publisher.send(f.ack(f.PUBREL, number))
            publisher.take()

    end = [step for i in range(MEMBERS) for step in (("connect", i), ("read", i), ("settle", 0))] * 30
    for step, index in [*steps, *end]:
        member = members[index]
        match step:
            case "publish 1":
                publish(1)
            case "publish 2":
                publish(2)
            case "settle":
                gateway.settle()
            case "time":
                gateway.advance(0.06)
            case "connect":
                if member.peer is None:
                    member.connect(gateway)
            case "drop":
                faults = faults or member.peer is not None
                member.drop()
                gateway.settle()
            case "read":
                member.read(10**9)
            case "read one":
                member.read(1)
            case _:
                generation += 1
                faults = True
                old = gateway
                if step == "stop":
                    for member in members:
                        member.drop()
                    publisher.drop()
                    gateway = gateway.restart()
                else:
                    gateway = gateway.crash(folder / str(generation))
                    old.stop()
                    shutil.rmtree(old.folder)
                    for member in members:
                        member.peer = None
                publisher = gateway.connect("pub", 5)
    gateway.settle()
    counts = Counter(number for member in members for number in member.got)
    assert set(counts) == set(sent)
    assert all(counts[number] == 1 for number, qos in sent.items() if qos == 2)
    if not faults:
        assert set(counts.values()) <= {1}
        if strategy != "round-robin":
            # One member for each topic, or for the publisher, and so its order.
            for member in members:
                for qos in (1, 2):
                    mine = [number for number in member.got if sent[number] == qos]
                    assert mine == sorted(mine)
    gateway.stop()
    forget_runs()
