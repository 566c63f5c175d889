"""Kills of Spark's processes and of the gateway during writes; each row is written once (`make spark-kills`).

`kill_program` is what is killed. On `local-cluster` a task whose process is gone is done again by Spark, and
has sent some of its rows by then; so the source, which is read over the network. A driver that is killed
goes on from its checkpoint: here at the moments when the two do not agree.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest

from penstock.spark.jobs.sink import start_sink
from penstock.spark.running import run_to_end
from tests.spark.kill_program import BATCH_OFFSETS, FATAL_BATCH, stream
from tests.support.brokers import ROOT, Gateway, free_port
from tests.support.spark_sink import bound, taken, url
from tests.support.spark_source import publish, wait_for_end
from tests.support.written_tables import payloads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 900.0
"""Far more than anything here takes."""
ROWS = 16_000
RATE = 1_000
"""Rows a second and task: so that there is time to kill something, and some has been sent by then."""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway that has its ports also when it is started again."""
    settings = {"native.listen": f"127.0.0.1:{free_port()}"}
    with Gateway(tmp_path / "gateway", settings=settings) as running:
        yield running


class Program:
    """A run of `kill_program`, and the processes it has."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log

    def processes(self) -> dict[int, tuple[int, str]]:
        """(parent, command line) of each by its id."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, IndexError):
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == self.process.pid and fields[0] not in "ZX":
                    words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(path.name)] = (int(fields[1]), words)
        return found

    def victim(self, kind: str) -> int | None:
        """An executor, or a Python process of one that runs tasks; None: there is none just now."""
        found = self.processes()
        executors = {pid for pid, (_, words) in found.items() if "CoarseGrainedExecutorBackend" in words}
        if kind == "executor":
            return max(executors, default=None)
        daemons = {
            pid for pid, (parent, words) in found.items() if parent in executors and "pyspark" in words
        }
        return max((pid for pid, (parent, _) in found.items() if parent in daemons), default=None)

    def check(self) -> None:
        assert self.process.poll() is None, f"it ended too early\n{self.text()}"

    def text(self) -> str:
        return self.log.read_text()[-8000:]

    def ends(self) -> int:
        return self.process.wait(PATIENCE_S)


@contextmanager
def program(tmp_path: Path, verb: str, master: str | None, **options: str) -> Iterator[Program]:
    words = [sys.executable, "-m", "tests.spark.kill_program", verb]
    words += [word for name, value in options.items() for word in (f"--{name}", value)]
    log = tmp_path / f"{verb}.log"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    environment.pop("PENSTOCK_TEST_SPARK_MASTER", None)
    # Those of the session in this process, whose JVM is another one.
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        environment.pop(name, None)
    if master:
        environment["PENSTOCK_TEST_SPARK_MASTER"] = master
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["sh", "-c", 'export KILL_PROGRAM_GROUP=$$; exec "$@"', "sh", *words],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    running = Program(process, log)
    try:
        yield running
    finally:
        while left := running.processes():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.poll()
        process.wait()


def wait_until(condition: Callable[[], bool], running: Program) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        running.check()
        assert time.monotonic() < deadline, running.text()
        time.sleep(0.05)


def count(gateway: Gateway) -> int:
    connection = pika.BlockingConnection(pika.URLParameters(url(gateway)))
    found: int = connection.channel().queue_declare("taken", passive=True).method.message_count
    connection.close()
    return found


def kill_meanwhile(running: Program, gateway: Gateway, kinds: list[str]) -> None:
    """Kill one after the other, each when more has been sent since the last."""
    for kind in kinds:
        sent = count(gateway)
        wait_until(lambda sent=sent: count(gateway) > sent, running)  # type: ignore[misc]
        if kind == "gateway":
            gateway.kill9()
            gateway.start()
            continue
        wait_until(lambda kind=kind: running.victim(kind) is not None, running)  # type: ignore[misc]
        victim = running.victim(kind)
        running.check()
        if victim is not None:
            os.kill(victim, signal.SIGKILL)


def bodies(gateway: Gateway) -> Counter[str]:
    return Counter(body.decode() for _, body, _ in taken(gateway))


@pytest.mark.timeout(4 * PATIENCE_S)
@pytest.mark.parametrize("verb", ["send", "copy"])
def test_rows_of_tasks_are_sent_once_over_any_kill(gateway: Gateway, tmp_path: Path, verb: str) -> None:
    bound(gateway, "taken", "#")
    options = {"to": url(gateway), "rate": str(RATE)}
    expected = [str(number) for number in range(ROWS)]
    if verb == "send":
        options["rows"] = str(ROWS)
    else:
        expected = publish(gateway, 0, ROWS)
        wait_for_end(gateway, 0)
        options["data"] = f"penstock://guest:guest@127.0.0.1:{gateway.ports['native']}"
        options["checkpoint"] = str(tmp_path / "checkpoint")
    with program(tmp_path, verb, "local-cluster[2,1,1024]", **options) as running:
        kill_meanwhile(running, gateway, ["worker", "gateway", "executor", "worker"])
        assert running.ends() == 0, running.text()
    assert bodies(gateway) == Counter(expected)


@pytest.mark.timeout(4 * PATIENCE_S)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["gateway", "delta"])
def test_a_driver_that_is_killed_between_write_and_checkpoint_goes_on_without_loss_or_repetition(
    spark: SparkSession, gateway: Gateway, tmp_path: Path, kind: str, when: str
) -> None:
    bound(gateway, "taken", "#")
    sent = publish(gateway, 0, 1_500)
    wait_for_end(gateway, 0)
    checkpoint, data = tmp_path / "checkpoint", str(gateway.data_dir)
    to = url(gateway) if kind == "gateway" else f"delta:{tmp_path / 'table'}"
    with program(tmp_path, "die", None, data=data, to=to, checkpoint=str(checkpoint), when=when) as running:
        assert running.ends() == -signal.SIGKILL, running.text()
    assert (checkpoint / "offsets" / str(FATAL_BATCH)).exists()
    assert not (checkpoint / "commits" / str(FATAL_BATCH)).exists()
    limits = {"maxOffsetsPerTrigger": BATCH_OFFSETS, "exchanges": "amq.topic"}
    if kind == "gateway":
        assert 0 < count(gateway) < len(sent)
        run_to_end(lambda: stream(spark, data, to, checkpoint, maxOffsetsPerTrigger=BATCH_OFFSETS))
        assert bodies(gateway) == Counter(sent)
    else:
        assert 0 < len(payloads(to)) < len(sent)
        run_to_end(lambda: start_sink(spark, data, to, checkpoint, options=limits))
        assert Counter(payloads(to)) == Counter(sent)
