"""A gateway that was installed somewhere, started there, and a message through it by the SDK."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

LIMIT_S = 600.0
"""For one step; a machine may be slow."""
LISTENERS = ("amqp", "mqtt", "native", "http", "management", "metrics")

PROGRAM = """
import sys
import penstock.sync

with penstock.sync.connect(sys.argv[1]) as client:
    with client.subscribe("hello", "first", start="earliest") as consumer:
        with client.producer("hello") as producer:
            producer.send(b"from here", key="key", headers={"number": 7})
        message = consumer.receive(timeout_s=60)
        assert message is not None and message.value == b"from here", message
        assert (message.key, message.headers["number"]) == ("key", 7), message.headers
        consumer.ack(message)
"""

CLIENTS = """
import base64, json, sys, urllib.request
import paho.mqtt.publish
import pika

amqp, mqtt, http = sys.argv[1:]
connection = pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@{amqp}/"))
channel = connection.channel()
channel.queue_declare("weather")
channel.queue_bind("weather", "amq.topic", "weather.#")
host, _, port = mqtt.rpartition(":")
paho.mqtt.publish.single("weather/oslo", "by MQTT", qos=1, hostname=host, port=int(port))
type_ = "application/json"
request = urllib.request.Request(
    f"http://{http}/v1/vhosts/%2F/queues/weather/messages",
    json.dumps({"value": "by HTTP"}).encode(),
    {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode(), "Content-Type": type_},
)
urllib.request.urlopen(request, timeout=60).close()
taken = channel.consume("weather", inactivity_timeout=60)
bodies = [next(taken)[2] for _ in range(2)]
assert bodies == [b"by MQTT", b"by HTTP"], bodies
connection.close()
"""


def clean() -> dict[str, str]:
    """This machine's environment without what points Python at a checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def environment(folder: Path, python: str, *packages: str) -> Path:
    """A new virtual environment of that Python with some packages; its Python. Raises CalledProcessError."""
    began = time.monotonic()
    subprocess.run([python, "-m", "venv", str(folder)], check=True, env=clean())
    made = folder / "bin/python"
    install(made, *packages)
    print(f"installed in {time.monotonic() - began:.1f} s", flush=True)
    return made


def install(python: Path, *packages: str) -> None:
    """Put more packages into the environment of that Python. Raises CalledProcessError."""
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, *packages], check=True, cwd=python.parent, env=clean())


@contextlib.contextmanager
def gateway(command: Sequence[str], folder: Path) -> Iterator[dict[str, str]]:
    """The addresses of a gateway by its listeners, until the block ends; then it stops without an error.

    Args:
        command: The words of `penstock`.
        folder: For data.

    """
    words = [*command, "serve", "--data", str(folder / "data"), "--log-level", "warning"]
    for name in LISTENERS:
        words += ["--set", f"{name}.listen=127.0.0.1:0"]
    began = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=folder, env=clean())
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        found = dict(re.findall(r" (\w+)=(\S+)", ready))
        assert "native" in found, f"the gateway did not become ready: {ready!r}"
        print(f"ready in {time.monotonic() - began:.2f} s", flush=True)
        yield found
        process.terminate()
        assert process.wait(LIMIT_S) == 0, "the gateway did not stop by SIGTERM"
    finally:
        process.kill()
        process.wait()


def send_and_read(python: Sequence[str], places: dict[str, str], folder: Path) -> None:
    """Send a message by the SDK and read it. Raises CalledProcessError.

    Args:
        python: The words in front of a program in Python.
        places: The addresses of the gateway.
        folder: Where it runs.

    """
    url = f"penstock://guest:guest@{places['native']}"
    subprocess.run([*python, "-c", PROGRAM, url], check=True, cwd=folder, env=clean(), timeout=LIMIT_S)
    print("a message went through by the SDK", flush=True)


def send_by_others(python: Path, places: dict[str, str], folder: Path) -> None:
    """Send by MQTT and HTTP, and take both messages by AMQP. Raises CalledProcessError."""
    words = [str(python), "-c", CLIENTS, *(places[name] for name in ("amqp", "mqtt", "http"))]
    subprocess.run(words, check=True, cwd=folder, env=clean(), timeout=LIMIT_S)
    print("messages went through by MQTT, HTTP and AMQP", flush=True)
