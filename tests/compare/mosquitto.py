"""Random MQTT sessions on penstock and on Debian's Mosquitto, and what differs in what clients see.

    python -m tests.compare.mosquitto [--seconds 300] [--seed 1]

A program is a list of steps of three clients: connect (clean or not), subscribe, unsubscribe, publish at any
QoS with or without RETAIN, stop acknowledging, leave by DISCONNECT or by a fault (with a will). After each
step a fourth client publishes a mark, and everybody reads up to it. Compared are the packets of each client
after each step, but for what the standard leaves open: packet ids, the order among topics, one or several
copies under overlapping filters, and whether an acknowledgement says that nobody subscribed.
"""

from __future__ import annotations

import argparse
import math
import random
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from penstock.protocols.mqtt.subscriptions.filters import covers
from tests.reference import mqtt_frames as f
from tests.support.brokers import Broker, Gateway, Mosquitto
from tests.support.mqtt_wire import Gate, Wire

__all__ = ["compare", "differences"]

CLIENTS = 3
FILTERS = ("a", "a/b", "a/+", "+/b", "+", "a/#", "#", "c/+/d", "+/+/d", "will")
TOPICS = ("a", "a/b", "b/b", "c/x/d", "a/b/d", "c")
QOS_3 = f.packet(3, 6, f.text("t") + b"\0\1")
EXPIRY = b"\x11\0\0\x10\0"

Step = tuple[Any, ...]
Seen = list[Any]


def program(random_: random.Random) -> list[Step]:
    """Steps that are the same for every broker: (kind, client, ...)."""
    steps: list[Step] = []
    for _ in range(random_.randint(8, 30)):
        client, kind = random_.randrange(CLIENTS), random_.random()
        if kind < 0.2:
            will = (random_.choice(("will", "a")), random_.randrange(3), random_.random() < 0.3)
            steps.append(
                ("connect", client, random_.random() < 0.4, will if random_.random() < 0.4 else None)
            )
        elif kind < 0.4:
            some = random_.sample(FILTERS, random_.randint(1, 3))
            steps.append(("subscribe", client, [(name, random_.randrange(3)) for name in some]))
        elif kind < 0.48:
            steps.append(("unsubscribe", client, random_.sample(FILTERS, random_.randint(1, 2))))
        elif kind < 0.86:
            empty = random_.random() < 0.15
            publish = random_.choice(TOPICS), random_.randrange(3), random_.random() < 0.3, empty
            steps.append(("publish", client, *publish))
        elif kind < 0.9:
            steps.append(("stop acknowledging", client))
        else:
            steps.append((random_.choice(("disconnect", "fault")), client))
    return steps


class Run:
    """One program on one broker."""

    def __init__(self, port: int, version: int, name: str) -> None:
        self._gate, self._version, self._name = Gate(port, version), version, name
        self._wires: dict[int, Wire] = {}
        self._silent: set[int] = set()
        self._marks = 0
        self._control = self._gate.connect()
        _send_at_once(self._control)

    def run(self, steps: list[Step]) -> list[Seen]:
        """The packets that each step brought."""
        try:
            return [self._step(number, *step) for number, step in enumerate(steps)]
        finally:
            self._gate.close()

    def _step(self, number: int, kind: str, client: int, *words: Any) -> Seen:
        answer: Any = None
        awaited = 0
        early: list[Any] = []
        if kind == "connect":
            answer = self._connect(client, *words)
        elif client not in self._wires:
            return []
        elif kind == "subscribe":
            filters = [(f"{self._name}/t/{name}", qos) for name, qos in words[0]]
            self._wires[client].send(f.subscribe(9, *filters, version=self._version))
            awaited = 9
        elif kind == "unsubscribe":
            names = [f"{self._name}/t/{name}" for name in words[0]]
            self._wires[client].send(f.unsubscribe(9, *names, version=self._version))
            awaited = 11
        elif kind == "publish":
            topic, qos, retain, empty = words
            payload = b"" if empty else b"m%d" % number
            self._wires[client].publish(
                f"{self._name}/t/{topic}", payload, qos=qos, retain=retain, packet_id=100 + number
            )
            awaited = (0, 4, 7)[qos]
        elif kind == "stop acknowledging":
            self._silent.add(client)
        else:
            self._leave(client, kind)
        while awaited:  # an answer may wait for the disk while a ping is answered
            packet = self._wires[client].next()
            self._take(client, self._wires[client], packet, early)
            if packet.kind == awaited:
                break
        return [answer, {client: early}, self._settle(), self._settle()]

    def _connect(self, client: int, clean: bool, will: tuple[str, int, bool] | None) -> Any:
        if client in self._wires:
            self._leave(client, "disconnect")
        self._silent.discard(client)
        wire = self._gate.wire()
        _send_at_once(wire)
        options: dict[str, Any] = {"clean": clean}
        if self._version == 5 and not clean:
            options["props"] = EXPIRY
        if will is not None:
            options["will"] = (f"{self._name}/t/{will[0]}", b"will of %d" % client, *will[1:])
        connack = wire.connect(f"{self._name}-{client}", **options)
        self._wires[client] = wire
        wire.send(f.subscribe(8, (f"{self._name}/mark", 0), version=self._version))
        return connack.session_present, connack.codes

    def _leave(self, client: int, how: str) -> None:
        wire = self._wires.pop(client)
        wire.send(f.disconnect() if how == "disconnect" else QOS_3)
        wire.until_closed()

    def _settle(self) -> Any:
        """Read each client up to the next mark, and acknowledge each message as it arrives."""
        for wire in self._wires.values():
            wire.send(b"\xc0\0")  # what was sent before is handled when this is answered
        seen: dict[int, list[Any]] = {client: [] for client in self._wires}
        for client, wire in self._wires.items():
            while (packet := wire.next()).kind != 13:
                self._take(client, wire, packet, seen[client])
        self._marks += 1
        mark = b"%d" % self._marks
        self._control.publish(f"{self._name}/mark", mark)
        for client, wire in self._wires.items():
            while not (
                (packet := wire.next()).kind == 3 and packet.body.endswith(b"/mark" + self._tail(mark))
            ):
                self._take(client, wire, packet, seen[client])
        return seen

    def _tail(self, mark: bytes) -> bytes:
        return (b"\0" if self._version == 5 else b"") + mark

    def _take(self, client: int, wire: Wire, packet: f.Packet, seen: list[Any]) -> None:
        if packet.kind == 3:
            message = wire.parse_publish(packet)
            if message.topic.endswith("/mark"):
                return
            seen.append((message.topic[len(self._name) :], message.payload, message.retain, message.qos))
            if message.qos and client not in self._silent:
                wire.send(f.ack(4 if message.qos == 1 else 5, message.packet_id))
            return
        answer = wire.parse(packet)
        if packet.kind == 5 and answer.codes[0] < 0x80:
            wire.pubrel(answer.packet_id)
        elif packet.kind == 6 and client not in self._silent:
            wire.pubcomp(answer.packet_id)
        if packet.kind in (9, 11) and answer.packet_id == 9:
            seen.append((packet.kind, answer.codes))
        elif packet.kind in (4, 5, 7):
            seen.append((packet.kind, [0 if code == 0x10 else code for code in answer.codes]))


def _send_at_once(wire: Wire) -> None:
    wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def reduced(seen: Seen, number: int, asked: dict[int, set[str]]) -> Any:
    """A step without what is open: per client the answers, and each message once at its highest QoS.

    Where several filters that a client ever `asked` for match a topic, the QoS is left out: Mosquitto 2.0
    sends one copy at the QoS of any of them, the standard wants the highest (mqtt5:3.3.4-2). So such a one
    may also be kept for a session, or sent again, by one of them only: then it is left out.
    """
    if not seen:
        return None
    answer, *rounds = seen
    clients: dict[int, tuple[list[Any], dict[Any, int]]] = {}
    for round_ in rounds:
        for client, packets in round_.items():
            answers, messages = clients.setdefault(client, ([], {}))
            for packet in packets:
                if len(packet) == 2:
                    answers.append(packet)
                else:
                    matching = [name for name in asked[client] if covers(name, packet[0][3:])]
                    if len(matching) > 1 and packet[1] != b"m%d" % number:
                        continue
                    qos = packet[3] if len(matching) == 1 else 0
                    messages[packet[:3]] = max(qos, messages.get(packet[:3], 0))
    return answer, {client: (sorted(a, key=str), m) for client, (a, m) in clients.items()}


def differences(brokers: list[Broker], seed: int) -> str:
    """The first difference between the brokers in the program of this seed; "" = none."""
    steps = program(random.Random(seed))
    asked: dict[int, set[str]] = {client: set() for client in range(CLIENTS)}
    for kind, client, *words in steps:
        if kind == "subscribe":
            asked[client].update(name for name, _ in words[0])
    for version in (4, 5):
        ours, theirs = (Run(b.mqtt_port, version, f"p{seed}v{version}").run(steps) for b in brokers)
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            mine, other = reduced(mine, number, asked), reduced(other, number, asked)
            if mine != other:
                told = "\n".join(map(str, steps[: number + 1]))
                return f"seed {seed}, version {version}, after\n{told}\nours   {mine}\ntheirs {other}"
    return ""


def compare(
    folder: Path, seed: int, *, seconds: float = math.inf, programs: float = math.inf
) -> tuple[int, list[str]]:
    """Run programs for a time, or so many; how many there were, and what differed."""
    found: list[str] = []
    with (
        Gateway(folder / "penstock") as gateway,
        Mosquitto(folder / "mosquitto", options=("set_tcp_nodelay true",)) as mosquitto,
    ):
        ends, count = time.monotonic() + seconds, 0
        while time.monotonic() < ends and count < programs and len(found) < 5:
            difference = differences([gateway, mosquitto], seed + count)
            count += 1
            if difference:
                found.append(difference)
    return count, found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        count, found = compare(Path(folder), words.seed, seconds=words.seconds)
    print(f"{count} programs, {len(found)} differences")
    print("\n\n".join(found))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
