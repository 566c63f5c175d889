"""A disk that fails or is full under a running gateway: nothing false is confirmed, and it says why.

The faults of the log by itself are in `test_log_disk.py`; here the system calls of a real process fail.
"""

from __future__ import annotations

import errno
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest

from tests.support.brokers import Gateway
from tests.support.faults import Shim

pytestmark = [pytest.mark.penstock_only("this is about penstock's log"), pytest.mark.timeout(900)]

LIMIT_S = 240.0
BODY = random.Random(5).randbytes(40_000)
"""Nothing compresses it."""
LARGE = random.Random(6).randbytes(200_000)
"""So large that few fill a disk: each waits for the confirm of the one before."""


class FaultyGateway(Gateway):
    """A gateway with a shim between it and its disk."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, settings={"log.segment_bytes": "1MiB", "log.min_free_bytes": "0"})
        self.shim = Shim(folder / "shim", self.data_dir)
        self.shimmed = True

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **(self.shim.environment if self.shimmed else {})}


class Publisher(threading.Thread):
    """Publishes numbered persistent messages, each after the confirm of the one before, until it is told to
    stop or the connection ends."""

    def __init__(self, port: int, body: bytes = BODY) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self.confirmed = 0
        self._body = body
        self._stopping = threading.Event()
        parameters = pika.ConnectionParameters(
            "127.0.0.1", port, heartbeat=0, blocked_connection_timeout=None
        )
        self._connection = pika.BlockingConnection(parameters)
        self._channel = self._connection.channel()
        self._channel.queue_declare("q", durable=True)
        self._channel.confirm_delivery()

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.sent += 1
                body = b"%d " % (self.sent - 1) + self._body
                self._channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2))
                self.confirmed += 1
            self._connection.close()
        except (pika.exceptions.AMQPError, OSError):
            pass  # the gateway ended: what is confirmed is counted

    def wait_for(self, count: int) -> None:
        wait(lambda: self.confirmed >= count, f"{count} confirms")

    def stop(self) -> None:
        self._stopping.set()
        self.join(LIMIT_S)
        assert not self.is_alive()


def wait(condition: object, what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"no {what} in {LIMIT_S} s"
        time.sleep(0.01)


def drained(port: int, most: int = 0, sent: bytes = BODY) -> list[int]:
    """The numbers of the first `most` messages of the queue; 0: of all, up to one that is published now."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=50)
    if not most:
        channel.basic_publish("", "q", b"end")
    found: list[int] = []
    for method, _, body in channel.consume("q", inactivity_timeout=LIMIT_S):
        assert body is not None, f"no delivery in {LIMIT_S} s"
        channel.basic_ack(method.delivery_tag)
        if body == b"end":
            break
        number, _, rest = body.partition(b" ")
        assert rest == sent
        found.append(int(number))
        if len(found) == most:
            break
    connection.close()
    return found


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[FaultyGateway]:
    try:
        made = FaultyGateway(tmp_path / "gateway")
    except FileNotFoundError as error:
        pytest.skip(f"no library that makes system calls fail: {error}")
    try:
        yield made.start()
    finally:
        if made.running:
            made.kill9()


@pytest.mark.parametrize(
    ("call", "why"),
    [("fdatasync", "the log stopped: a sync failed"), ("pwritev", "the log stopped: a write failed")],
)
def test_after_an_io_error_nothing_is_confirmed_and_the_gateway_ends_and_says_why(
    gateway: FaultyGateway, call: str, why: str
) -> None:
    publisher = Publisher(gateway.amqp_port)
    publisher.start()
    publisher.wait_for(100)
    gateway.shim.fail(call, errno.EIO)
    wait(lambda: not gateway.running, "end of the gateway")
    publisher.stop()
    assert gateway._process is not None and gateway._process.returncode == 1
    told = gateway.log_text()
    assert f"{why}: Input/output error; check the disk, then restart" in told
    assert publisher.sent == publisher.confirmed + 1, "the last one was never confirmed"
    gateway.shimmed = False
    gateway.start()
    numbers = drained(gateway.amqp_port)
    assert set(range(publisher.confirmed)) <= set(numbers) <= set(range(publisher.sent))
    gateway.terminate()


def test_a_sync_that_fails_once_is_not_tried_again(gateway: FaultyGateway) -> None:
    """A second sync would succeed and prove nothing: the system may have dropped what it could not write."""
    publisher = Publisher(gateway.amqp_port)
    publisher.start()
    publisher.wait_for(50)
    gateway.shim.fail("fdatasync", errno.EIO)
    wait(lambda: "a sync failed" in gateway.log_text(), "failed sync")
    gateway.shim.heal()
    wait(lambda: not gateway.running, "end of the gateway")
    publisher.stop()
    assert publisher.sent == publisher.confirmed + 1, "the last one was never confirmed"
    assert not (gateway.data_dir / "CLEAN").exists()


def test_a_read_that_fails_is_told_and_tried_again_and_costs_nothing(gateway: FaultyGateway) -> None:
    publisher = Publisher(gateway.amqp_port)
    publisher.start()
    publisher.wait_for(100)
    publisher.stop()
    gateway.restart()
    gateway.shim.fail("pread", errno.EIO)
    connection = pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, heartbeat=0)
    )
    came: list[bytes] = []
    connection.channel().basic_consume("q", lambda *delivery: came.append(delivery[3]))
    wait(lambda: "cannot be read now: Input/output error" in gateway.log_text(), "log line")
    assert gateway.running and not came
    gateway.shim.heal()
    deadline = time.monotonic() + LIMIT_S
    while not came:
        assert time.monotonic() < deadline, "no delivery"
        connection.process_data_events(time_limit=0.1)
    connection.close()
    assert drained(gateway.amqp_port) == list(range(publisher.confirmed))


def test_a_message_due_during_a_read_failure_comes_when_the_disk_works_again(gateway: FaultyGateway) -> None:
    gateway.terminate()
    gateway.settings |= {"log.tail_cache_bytes": "1MiB", "log.scrub_bytes_per_s": "0"}
    gateway.shim = Shim(gateway.folder / "segments", gateway.data_dir / "shard-000" / "wal")
    gateway.start()
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, heartbeat=0)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    for name in ("q", "other"):
        channel.queue_declare(name, durable=True)
    channel.confirm_delivery()
    gateway.shim.fail("pread", errno.EIO)
    delayed = 0
    told = "a delayed record at LSN"
    deadline = time.monotonic() + LIMIT_S
    while told not in gateway.log_text():  # when it leaves memory before it is due
        assert time.monotonic() < deadline, f"of {delayed} all were still in memory"
        # Each later than the one before: on a slow disk it takes longer until it has left memory.
        delay_ms = 300 * (1 + delayed)
        properties = pika.BasicProperties(delivery_mode=2, headers={"x-penstock-deliver-after": delay_ms})
        channel.basic_publish("", "q", b"delayed %d" % delayed, properties)
        delayed += 1
        for _ in range(100):
            channel.basic_publish("", "other", BODY, pika.BasicProperties(delivery_mode=2))
    gateway.shim.heal()
    numbers: list[int] = []
    for method, _, body in channel.consume("q", inactivity_timeout=LIMIT_S):
        assert body is not None, f"no delivery in {LIMIT_S} s, after {numbers} of {delayed}"
        channel.basic_ack(method.delivery_tag)
        numbers.append(int(body.removeprefix(b"delayed ")))
        if len(numbers) == delayed:
            break
    assert sorted(numbers) == list(range(delayed))
    wait(lambda: "the delayed records that could not be read came" in gateway.log_text(), "log line")
    channel.cancel()
    assert channel.queue_declare("q", passive=True).method.message_count == 0
    connection.close()
    gateway.terminate()


@contextmanager
def _mounted(folder: Path) -> Iterator[Path]:
    """A file system of 64 MiB."""
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(folder)]
    mounted = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"this user cannot make a small file system: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=LIMIT_S)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with _mounted(tmp_path / "disk") as disk:
        yield disk


SMALL = {
    "log.segment_bytes": "1MiB",
    "log.min_free_bytes": "24MiB",
    "log.checkpoint_bytes": "1MiB",
    "log.traffic_retention_bytes": "0",
}


@pytest.fixture
def on_small_disk(small_disk: Path, tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path / "gateway", settings=SMALL)
    gateway.data_dir = small_disk / "data"
    with gateway:
        yield gateway


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def test_publishers_wait_before_the_disk_is_full_and_go_on_when_consumers_made_room(
    on_small_disk: Gateway, small_disk: Path
) -> None:
    publisher = Publisher(on_small_disk.amqp_port, LARGE)
    publisher.start()
    wait(lambda: "publishers wait: the disk is nearly full" in on_small_disk.log_text(), "alarm")
    assert "the disk is full" not in on_small_disk.log_text() and _free(small_disk) > 0
    held = publisher.confirmed
    got = drained(on_small_disk.amqp_port, held, LARGE)
    assert got == list(range(held))
    publisher.wait_for(held + 100)
    publisher.stop()
    got += drained(on_small_disk.amqp_port, sent=LARGE)
    assert got == list(range(publisher.confirmed))


def test_a_disk_that_others_fill_holds_publishers_and_loses_nothing(
    on_small_disk: Gateway, small_disk: Path
) -> None:
    publisher = Publisher(on_small_disk.amqp_port)
    publisher.start()
    publisher.wait_for(200)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(65536))
    wait(lambda: "publishers wait: the disk is" in on_small_disk.log_text(), "alarm")
    got = drained(on_small_disk.amqp_port, 100)  # consumers go on
    assert got == list(range(100))
    filler.unlink()
    publisher.wait_for(publisher.confirmed + 100)
    publisher.stop()
    assert on_small_disk.running
    got += drained(on_small_disk.amqp_port)
    assert got == list(range(publisher.confirmed))
    on_small_disk.kill9()
    on_small_disk.start()


def test_a_folder_on_a_second_disk_takes_what_the_first_has_no_room_for(
    small_disk: Path, tmp_path: Path
) -> None:
    with _mounted(tmp_path / "second") as second:
        gateway = Gateway(tmp_path / "gateway", settings={**SMALL, "log.folders": str(second)})
        gateway.data_dir = small_disk / "data"
        with gateway:
            publisher = Publisher(gateway.amqp_port, LARGE)
            publisher.start()
            wait(lambda: "publishers wait: the disk is nearly full" in gateway.log_text(), "alarm")
            for disk in (small_disk, second):
                segments = [path for path in disk.rglob("*.wal") if not path.is_symlink()]
                assert sum(path.stat().st_size for path in segments) > 30 << 20, "both are in use"
                assert _free(disk) > 16 << 20, "and none is full"
            gateway.kill9()
            gateway.start()
            held = publisher.confirmed
            got = drained(gateway.amqp_port, held, LARGE)
            assert sorted(set(got)) == list(range(len(set(got)))) and len(set(got)) >= held
