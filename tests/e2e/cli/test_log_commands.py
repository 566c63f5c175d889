"""`penstock log` beside a gateway under load: a backup is a log of its own; looking disturbs nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pika
import pytest

from tests.support.brokers import ROOT, Gateway
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS

pytestmark = pytest.mark.penstock_only("this is about the command penstock")

BODY = b"x" * 4000


class Publisher(threading.Thread):
    """Publishes numbered persistent messages with confirms until it is told to stop."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.confirmed = 0
        self.failure = ""
        self._stopping = threading.Event()
        self._connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0))
        self._channel = self._connection.channel()
        self._channel.queue_declare("load", durable=True)
        self._channel.confirm_delivery()

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                body = b"%d " % self.confirmed + BODY
                self._channel.basic_publish("", "load", body, pika.BasicProperties(delivery_mode=2))
                self.confirmed += 1
            self._connection.close()
        except Exception as error:  # told by the test
            self.failure = repr(error)

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + LIMIT_S
        while self.confirmed < count:
            assert not self.failure, self.failure
            assert time.monotonic() < deadline, f"{self.confirmed} of {count} confirmed"
            time.sleep(0.01)

    def stop(self) -> None:
        self._stopping.set()
        self.join(LIMIT_S)
        assert not self.is_alive() and not self.failure, self.failure


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    settings = {"log.segment_bytes": "1MiB", "log.checkpoint_bytes": "1MiB", "log.min_free_bytes": "0"}
    with Gateway(tmp_path / "live", settings=settings) as running:
        yield running


def penstock(*words: object, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout


def drained(port: int) -> list[int]:
    """The numbers of all messages of the queue, in their order: up to one that is published now."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0))
    channel = connection.channel()
    channel.basic_publish("", "load", b"end")
    numbers = []
    for _, _, body in channel.consume("load", auto_ack=True, inactivity_timeout=60):
        assert body is not None, "nothing came in a minute"
        if body == b"end":
            break
        number, _, rest = body.partition(b" ")
        assert rest == BODY
        numbers.append(int(number))
    connection.close()
    return numbers


def test_a_gateway_on_a_backup_has_all_that_was_confirmed_before_it(gateway: Gateway, tmp_path: Path) -> None:
    publisher = Publisher(gateway.amqp_port)
    publisher.start()
    copies = []
    for round_ in range(3):
        publisher.wait_for(publisher.confirmed + 300)
        before = publisher.confirmed
        target = tmp_path / f"copy{round_}" / "data"
        target.parent.mkdir()
        done = json.loads(penstock("log", "backup", gateway.data_dir, "--to", target, "-o", "json"))
        copies.append((target, before, publisher.confirmed, done))
    publisher.wait_for(publisher.confirmed + 100)
    publisher.stop()
    assert copies[-1][3]["linked_files"] > copies[0][3]["linked_files"]
    for target, before, after, _ in copies:
        penstock("log", "verify", target)
        copy = Gateway(target.parent)
        assert copy.data_dir == target
        with copy:
            numbers = drained(copy.amqp_port)
        assert numbers == list(range(len(numbers)))
        assert before <= len(numbers) <= after + 1
    penstock("log", "verify", gateway.data_dir)
    assert drained(gateway.amqp_port) == list(range(publisher.confirmed))


def test_read_only_commands_work_on_a_gateway_under_load(gateway: Gateway) -> None:
    publisher = Publisher(gateway.amqp_port)
    publisher.start()
    for _ in range(3):
        publisher.wait_for(publisher.confirmed + 200)
        before = publisher.confirmed
        penstock("log", "verify", gateway.data_dir)
        lines = penstock("log", "dump", gateway.data_dir, "--queue", "load", "--body", "none").splitlines()
        assert before <= len(lines) <= publisher.confirmed + 1
        found = json.loads(penstock("log", "stats", gateway.data_dir, "-o", "json"))
        assert before <= found["queues"][0]["messages"] <= publisher.confirmed + 1
    publisher.stop()


def test_damage_is_a_metric_a_failed_health_check_and_a_log_line_and_costs_its_batch_only(
    tmp_path: Path,
) -> None:
    settings = {
        **SETTINGS,
        "log.segment_bytes": "1MiB",
        "log.min_free_bytes": "0",
        "metrics.listen": "127.0.0.1:0",
    }
    gateway = Gateway(tmp_path / "live", settings=settings)
    with gateway:
        publisher = Publisher(gateway.amqp_port)
        publisher.start()
        publisher.wait_for(800)
        publisher.stop()
    wal = sorted(gateway.data_dir.rglob("*.wal"))[0]
    raw = bytearray(wal.read_bytes())
    raw[raw.index(b"100 " + BODY) + 50] ^= 1
    wal.write_bytes(raw)
    with gateway.start():
        auth = ("guest", "guest")
        figure = f"http://127.0.0.1:{gateway.ports['metrics']}/metrics"
        health = f"http://127.0.0.1:{gateway.ports['management']}/api/health/checks/alarms"
        deadline = time.monotonic() + 60
        while "penstock_log_damaged_ranges 1" not in httpx.get(figure, timeout=LIMIT_S).text:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        answer = httpx.get(health, auth=auth, timeout=LIMIT_S)
        assert answer.status_code == 503
        assert [alarm["resource"] for alarm in answer.json()["alarms"]] == ["log_damage"]
        assert str(wal) in gateway.log_text() and "penstock log repair" in gateway.log_text()
        numbers = drained(gateway.amqp_port)
        lost = sorted(set(range(publisher.confirmed)) - set(numbers))
        assert 100 in lost and lost == list(range(lost[0], lost[-1] + 1)) and len(lost) < 20
    told = json.loads(penstock("log", "repair", gateway.data_dir, "-o", "json", code=3))
    (finding,) = told["findings"]
    assert finding["file"] == str(wal) and finding["lost"][0]["last_position"] > 0
    penstock("log", "repair", gateway.data_dir, "--apply", code=3)
    penstock("log", "verify", gateway.data_dir)
