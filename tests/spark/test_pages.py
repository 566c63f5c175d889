"""The lines and programs of docs/reference/spark.md, run as they stand, one after the other, as a reader
would (`make spark-docs`).

Only their places are others: folders of the test's own for /var/lib/penstock, /lake and /archive, and its
gateway's ports for 5672 and 15690. A line that starts a streaming job is stopped when it has written
something, but for the first one, which the page's own `penstock spark stop` ends.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pika
import pytest
from paho.mqtt import publish as mqtt

from tests.docs.pages import ROOT, commands
from tests.support.brokers import Gateway
from tests.support.spark_source import wait_for_end

PAGE = Path("docs/reference/spark.md")
DEADLINE_S = 600.0
STREAMS = {"sink", "dedup", "telemetry"}


def publish(gateway: Gateway) -> None:
    """Telemetry as the page's line wants it, a message with an id, and one dead letter."""
    body = '{"temperature": 21.5, "at": 1700000000000}'
    mqtt.multiple(
        [{"topic": f"plant/{n}/sensor", "payload": body, "qos": 1} for n in range(50)],
        hostname="127.0.0.1",
        port=gateway.mqtt_port,
    )
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare("again", "topic", durable=True)
    channel.queue_declare("again", durable=True)
    channel.queue_bind("again", "again", "#")
    channel.queue_declare("dead", durable=True)
    routes = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("taken", durable=True, arguments=routes)
    properties = pika.BasicProperties(delivery_mode=2, message_id="1")
    channel.basic_publish("", "taken", b"a job", properties)
    method, _, _ = channel.basic_get("taken")
    assert method is not None
    channel.basic_nack(method.delivery_tag, requeue=False)
    while not channel.queue_declare("dead", passive=True).method.message_count:
        connection.process_data_events(0.05)
    connection.close()


def depth(gateway: Gateway, queue: str) -> int:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port))
    count: int = connection.channel().queue_declare(queue, passive=True).method.message_count
    connection.close()
    return count


class Terminal:
    """Runs lines in a folder, with a job in the background if one is left running."""

    def __init__(self, folder: Path, replaced: dict[str, str]) -> None:
        self.folder, self.replaced = folder, replaced
        tools = folder / "bin"
        tools.mkdir()
        (tools / "penstock").write_text(f'#!/bin/sh\nexec {sys.executable} -m penstock "$@"\n')
        (tools / "penstock").chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "PENSTOCK_SPARK_JOBS": str(folder / "jobs"),
        }
        self.running: list[tuple[subprocess.Popen[bytes], Path]] = []

    def start(self, line: str) -> tuple[subprocess.Popen[bytes], Path]:
        for written, own in self.replaced.items():
            line = line.replace(written, own)
        log = self.folder / f"{len(list(self.folder.glob('*.log')))}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-euc", f"exec {line}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.running.append((process, log))
        return process, log

    def run(self, line: str) -> str:
        process, log = self.start(line)
        assert process.wait(DEADLINE_S) == 0, f"{line}\n{log.read_text()}"
        return log.read_text()

    def stream(self, line: str) -> tuple[subprocess.Popen[bytes], Path]:
        """Start a job, and wait until it has done a micro-batch."""
        process, log = self.start(line)
        deadline = time.monotonic() + DEADLINE_S
        while " batch 0: " not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, f"{line}\n{log.read_text()}"
            time.sleep(0.1)
        return process, log

    def close(self) -> None:
        for process, _ in self.running:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


@pytest.mark.timeout(3600)
def test_the_lines_of_the_page_do_what_they_say(gateway: Gateway, tmp_path: Path) -> None:
    publish(gateway)
    wait_for_end(gateway, 0)
    gateway.terminate()  # tier copies closed segments only
    gateway.start()
    folder = tmp_path / "work"
    folder.mkdir()
    places = {
        "/var/lib/penstock-jobs": str(folder / "checkpoints"),
        "/var/lib/penstock": str(gateway.data_dir),
        "/lake": str(folder / "lake"),
        "/archive": str(folder / "archive"),
        "5672": str(gateway.amqp_port),
        "6h": "0s",
    }
    terminal = Terminal(folder, places)
    said: dict[str, str] = {}
    first: subprocess.Popen[bytes] | None = None
    try:
        for line in commands(PAGE, "penstock", "spark-submit"):
            words = shlex.split(line)
            verb = words[2] if words[0] == "penstock" else "spark-submit"
            if verb in STREAMS:
                process, log = terminal.stream(line)
                if first is None:
                    first = process
                    continue
                process.send_signal(signal.SIGTERM)
                assert process.wait(DEADLINE_S) == 0, log.read_text()
                continue
            said[verb] = said.get(verb, "") + terminal.run(line)
        assert first is not None and first.wait(DEADLINE_S) == 0, "penstock spark stop has ended it"
    finally:
        terminal.close()
    assert re.search(r"traffic +running", said["lag"]), said
    assert "traffic is stopped" in said["stop"]
    assert "MISSING" not in said["doctor"]
    assert "1  taken " in said["dlq"] and "1 sent as mondays-dead" in said["dlq"]
    assert "written: report.html" in said["analytics"] and "rows added" in said["analytics"]
    assert (folder / "report.html").stat().st_size > 5000
    assert depth(gateway, "taken") == 1
    assert depth(gateway, "again") > 100, "once by replay, and all there is by spark-submit"
    for table in ("traffic", "once", "plant", "rates"):
        assert (folder / "lake" / table / "_delta_log").is_dir()
    assert list((folder / "archive").glob("*/_penstock/*.json"))


PROGRAM = """
import json
from pyspark.sql import SparkSession
{blocks}
found = dict(traffic=df.count(), events=events.count(), lost=lost.count())
query, = spark.streams.active
query.processAllAvailable()
query.stop()
print(json.dumps(found))
"""


@pytest.mark.timeout(3600)
def test_the_programs_of_the_page_do_what_they_say(tmp_path: Path) -> None:
    """All in one program, with the session of the page that makes one by itself."""
    settings = {"native.listen": "127.0.0.1:0", "events.kinds": "deliver,dead_letter"}
    with Gateway(tmp_path / "gateway", settings=settings) as gateway:
        publish(gateway)
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port))
        channel = connection.channel()
        channel.exchange_declare("orders", "topic", durable=True)
        channel.queue_declare("orders", durable=True)
        channel.queue_bind("orders", "orders", "#")
        connection.close()
        wait_for_end(gateway, 0)
        places = {
            "/var/lib/penstock": str(gateway.data_dir),
            "/var/lib/job": str(tmp_path / "checkpoint"),
            "127.0.0.1:5672": f"127.0.0.1:{gateway.amqp_port}",
            "spark:secret@gw.example:15690": f"guest:guest@127.0.0.1:{gateway.ports['native']}",
        }
        programs = re.findall(r"^```python\n(.*?)^```$", (ROOT / PAGE).read_text(), re.M | re.S)
        sessions = [program for program in programs if "spark = " in program]
        others = [program for program in programs if "spark = " not in program]
        assert len(sessions) == 2 and len(others) == 4
        # On the page, `frame` is the reader's own data frame.
        frame = "frame = df.select('payload', 'routing_key')\n"
        blocks = "\n".join([sessions[-1], *others[:-1], frame, others[-1]])
        for written, own in places.items():
            assert written in blocks, written
            blocks = blocks.replace(written, own)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(blocks=blocks)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "only showing top 20 rows" in done.stdout, "fifty topics"
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["traffic"] >= 52 and found["lost"] == 1 and found["events"] >= 2, found
        assert depth(gateway, "orders") == 52, "telemetry, a job and its dead letter"
