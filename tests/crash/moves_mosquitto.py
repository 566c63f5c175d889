"""A large move from Mosquitto over kills: python -m tests.crash.moves_mosquitto [--sessions N].

Sessions begin while messages come, so that each has its own first message. Mosquitto writes its database and
is killed; the move and the gateway are killed while it runs. Then each session must have all that waited for
it, in order, with duplicates only of messages that were under way at a kill, and each retained message must
be there. Exit code 0 only when all of that holds.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.reference import mqtt_frames as f
from tests.support.brokers import ROOT, Gateway, Mosquitto
from tests.support.data_plane import until
from tests.support.management import SETTINGS
from tests.support.mqtt_wire import Wire

_BROADCASTS = 20
"""Messages for all sessions that are there, while sessions begin."""
_BATCH = 500


@dataclass
class Report:
    """The result of a run."""

    sessions: int
    retained: int
    waiting: int
    """Messages that waited, in all sessions together."""
    absent: int = 0
    """Sessions that a client did not find."""
    lost: int = 0
    disordered: int = 0
    twice: int = 0
    kills: int = 0
    moved_s: float = 0.0
    """How long the move took, its kills included."""

    @property
    def ok(self) -> bool:
        """Whether nothing is lost, and duplicates are only those of kills."""
        allowed = self.kills * _BATCH * self.sessions
        return not (self.absent or self.lost or self.disordered) and self.twice <= allowed


def run(folder: Path, *, sessions: int, retained: int, kills: int) -> Report:
    """Fill a Mosquitto, move it, and compare."""
    # Without the option each second acknowledgement would take 40 ms.
    source = Mosquitto(folder / "source", persistence=True, options=("set_tcp_nodelay true",))
    with source:
        _fill(source.mqtt_port, sessions, retained)
        database = source.data_dir / "mosquitto.db"
        os.kill(source.pid, signal.SIGUSR1)
        until(lambda: database.exists() and not list(source.data_dir.glob("*.new")))
        source.kill9()
    report = Report(sessions, retained, 0)
    # The port of the management API stays over a restart.
    with Gateway(folder / "target", settings=SETTINGS) as gateway:
        gateway.settings["management.listen"] = f"127.0.0.1:{gateway.ports['management']}"
        began = time.monotonic()
        _move(folder, gateway, report, kills)
        report.moved_s = time.monotonic() - began
        _compare(gateway.mqtt_port, report)
    return report


def _fill(port: int, sessions: int, retained: int) -> None:
    sender = _connect(port, "sender")
    for first in range(0, retained, _BATCH):
        _publish(sender, [(f"r/{n}", b"%d" % n, 1) for n in range(first, min(first + _BATCH, retained))])
    for number in range(sessions):
        if number in _broadcasts(sessions):
            _publish(sender, [("all", b"%d" % number, 0)])
        wire = _connect(port, f"s{number}", clean=False)
        wire.send(f.subscribe(1, ("all", 1), (f"own/{number}", 1)))
        wire.answer(9)
        wire.disconnect()
        _publish(sender, [(f"own/{number}", b"%d" % at, 0) for at in range(2)])
    sender.disconnect()


def _broadcasts(sessions: int) -> range:
    """The numbers of the sessions before which a message for all is published."""
    return range(0, sessions, max(sessions // _BROADCASTS, 1))


def _connect(port: int, client_id: str, *, clean: bool = True) -> Wire:
    wire = Wire(port, 4)
    wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wire.connect(client_id, clean=clean)
    return wire


def _publish(sender: Wire, messages: list[tuple[str, bytes, int]]) -> None:
    sender.send(
        *(
            f.publish(topic, body, qos=1, packet_id=at, retain=bool(retain))
            for at, (topic, body, retain) in enumerate(messages, 1)
        )
    )
    for _ in messages:
        sender.answer(4)


def _move(folder: Path, gateway: Gateway, report: Report, kills: int) -> None:
    state = folder / "state.json"
    conf = folder / "source" / "mosquitto.conf"
    command = [sys.executable, "-m", "penstock", "migrate", "mosquitto", str(conf), "--apply"]
    command += ["--state", str(state), "--mqtt", f"127.0.0.1:{gateway.mqtt_port}"]
    command += ["--url", f"http://guest:guest@127.0.0.1:{gateway.ports['management']}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    steps = report.retained + 3 * report.sessions
    moving = subprocess.Popen(command, env=environment)
    while report.kills < kills:
        _wait_for_step(steps * (report.kills + 1) // (kills + 1), moving, state)
        report.kills += 1
        if report.kills % 2:
            gateway.kill9()
            gateway.start()
        else:
            moving.kill()
            moving.wait()
            moving = subprocess.Popen(command, env=environment)
    assert moving.wait() == 0


def _wait_for_step(step: int, moving: subprocess.Popen[bytes], state: Path) -> None:
    def reached() -> bool:
        assert moving.poll() is None, "the move ended before it was killed"
        return state.exists() and json.loads(state.read_text())["done"] >= step

    until(reached, timeout_s=1800)


def _compare(port: int, report: Report) -> None:
    broadcasts = _broadcasts(report.sessions)
    for number in range(report.sessions):
        wanted = [b"%d" % n for n in (0, 1)] + [b"%d" % n for n in broadcasts if n > number]
        report.waiting += len(wanted)
        wire = _connect(port, f"s{number}", clean=False)
        report.absent += wire.connack.session_present != 1
        got: list[bytes] = []
        while len(set(got)) < len(set(wanted)) and (found := wire.next()).kind == 3:
            got.append(f.parse_publish(found, 4).payload)
        wire.close()
        once = list(dict.fromkeys(got))
        report.lost += len(set(wanted) - set(once))
        report.disordered += once != wanted
        report.twice += len(got) - len(once)
    reader = _connect(port, "reader")
    reader.send(f.subscribe(1, ("r/#", 0)))
    topics: set[bytes] = set()
    while len(topics) < report.retained:
        found = reader.next()
        if found.kind == 3:
            topics.add(f.parse_publish(found, 4).topic)
    reader.close()


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.moves_mosquitto")
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--retained", type=int, default=50_000)
    parser.add_argument("--kills", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-moves-") as folder:
        report = run(Path(folder), sessions=options.sessions, retained=options.retained, kills=options.kills)
    print(report)
    print("PASS" if report.ok else "FAIL")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
