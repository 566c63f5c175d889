"""Kernels move the messages of many connections: no Python function runs per message or acknowledgement."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.connections.drive import opened
from bench.connections.rows import ROWS, Row
from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S

MESSAGES = 10_000
MOST = MESSAGES // 100

BY_TIME = (
    "Listener._check",
    "Listener._check_some",
    "Periodic._fire",
    "Clients._save_dirty",
    "Log.tend",
    "Queues._flush",
    "Queue.mark_dirty",
)
"""The calls of timers, at any number of messages. Cursors are saved; the first cursor to be saved starts
the timer, once per `cursor_flush_ms`."""


class Counted(Gateway):
    """A gateway that counts its calls of Python functions."""

    @property
    def counts(self) -> Path:
        return self.folder / "counts.json"

    def command(self) -> list[str]:
        words = super().command()
        at = words.index("penstock")
        return [*words[:at], "tests.support.call_counts", str(self.counts), *words[at + 1 :]]

    def environment(self) -> dict[str, str]:
        inherited = dict(super().environment())
        root = str(Path(__file__).parents[2])
        return {**inherited, "PYTHONPATH": f"{inherited['PYTHONPATH']}:{root}"}

    def send(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    with Counted(tmp_path_factory.mktemp("counted")) as gateway:
        yield gateway


@pytest.mark.parametrize("row", [row for row in ROWS if row.connections <= 2000], ids=lambda row: row.name)
def test_no_python_function_runs_per_message(row: Row, gateway: Counted) -> None:
    port = gateway.amqp_port if row.protocol == "amqp" else gateway.mqtt_port
    with opened(row, port) as clients:
        clients.run(0, messages=max(4 * row.publishers // row.copies, 10))
        gateway.counts.unlink(missing_ok=True)
        gateway.send(signal.SIGUSR1)
        seen = clients.run(0, messages=MESSAGES // row.copies)
        gateway.send(signal.SIGUSR2)
        end = time.monotonic() + LIMIT_S
        while not gateway.counts.exists():
            assert time.monotonic() < end, "the gateway did not say what it counted"
            time.sleep(0.01)
    assert seen.delivered == seen.sent * row.copies >= MESSAGES
    counts: dict[str, int] = json.loads(gateway.counts.read_text())
    found = {root: n for root, n in counts.items() if not root.endswith(BY_TIME)}
    assert sum(found.values()) < MOST, f"{sum(found.values())} calls for {seen.delivered} messages: {found}"
