"""amqplib and MQTT.js: the Node clients, each in a script of its own under `node/`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.limits import LIMIT_S

NODE = Path(__file__).parent / "node"


@pytest.fixture(scope="module")
def packages() -> None:
    """The packages of package.json; skips when there is no Node."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node is not installed: apt-get install nodejs npm")
    if not (NODE / "node_modules" / "mqtt").is_dir() or not (NODE / "node_modules" / "amqplib").is_dir():
        install = ["npm", "install", "--silent", "--no-audit", "--no-fund"]
        subprocess.run(install, cwd=NODE, check=True, timeout=LIMIT_S)


def run(*words: str) -> None:
    done = subprocess.run(
        ["node", *words], cwd=NODE, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.stdout == "ok\n", f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0


@pytest.mark.usefixtures("packages")
def test_amqplib(amqp_port: int, unique: str) -> None:
    run("amqp.js", f"amqp://guest:guest@127.0.0.1:{amqp_port}/", unique)


@pytest.mark.usefixtures("packages")
@pytest.mark.penstock_only("RabbitMQ reads `last` from the last chunk")
def test_amqplib_reads_a_stream(amqp_port: int, unique: str) -> None:
    run("stream.js", f"amqp://guest:guest@127.0.0.1:{amqp_port}/", unique)


@pytest.mark.parametrize("version", ["4", "5"])
def test_mqtt_js(mqtt_port: int, unique: str, version: str) -> None:
    run("mqtt.js", f"mqtt://127.0.0.1:{mqtt_port}", unique, version)
