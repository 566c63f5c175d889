"""The gateway under a service manager: what it says on systemd's socket, and the unit that is shipped."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from penstock.service_manager import ServiceManager
from tests.support.brokers import DEFAULT_LISTENERS
from tests.support.limits import LIMIT_S

pytestmark = pytest.mark.penstock_only("this is about penstock as a service")

UNIT = Path(__file__).parents[3] / "deploy/systemd/penstock.service"
WATCHDOG_USEC = 400_000


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The manager's end of the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "notify"))
        end.settimeout(LIMIT_S)
        yield end


@pytest.mark.parametrize("workers", [1, 2], ids=["alone", "workers"])
def test_the_manager_hears_ready_alive_and_stopping(
    manager: socket.socket, tmp_path: Path, workers: int
) -> None:
    words = [sys.executable, "-m", "penstock", "serve", "--data", str(tmp_path / "data")]
    settings = {"amqp.listen": "127.0.0.1:0", "mqtt.listen": "", "server.workers": str(workers)}
    for key, value in {**settings, **dict.fromkeys(DEFAULT_LISTENERS, "")}.items():
        words += ["--set", f"{key}={value}"]
    told = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": str(WATCHDOG_USEC)}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(words, env=told, stdout=log, stderr=log)
    try:
        said = manager.recv(4096).decode()
        assert said.startswith("READY=1\nSTATUS=serves amqp at 127.0.0.1:")
        port = int(said.rpartition(":")[2])
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)).close()
        assert {manager.recv(4096) for _ in range(3)} == {b"WATCHDOG=1"}
        process.send_signal(signal.SIGTERM)
        while (last := manager.recv(4096)) == b"WATCHDOG=1":
            pass
        assert last == b"STOPPING=1\nSTATUS=stopping"
        assert process.wait(LIMIT_S) == 0
    finally:
        process.kill()
        process.wait()


def test_only_the_process_that_is_watched_says_that_it_is_alive(manager: socket.socket) -> None:
    told = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "1000000"}
    assert ServiceManager(told).alive_every_s == 0.5
    assert ServiceManager({**told, "WATCHDOG_PID": "1"}).alive_every_s == 0
    assert ServiceManager({"WATCHDOG_USEC": "1000000"}).alive_every_s == 0


def test_without_a_manager_nothing_is_said_and_one_that_is_gone_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ServiceManager({}).ready("serves")
    assert not caplog.records
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready("serves")
    assert "the service manager was not told 'READY=1'" in caplog.text


def test_the_abstract_namespace_is_understood() -> None:
    name = f"penstock-{id(object())}-{WATCHDOG_USEC}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind("\0" + name)
        end.settimeout(LIMIT_S)
        ServiceManager({"NOTIFY_SOCKET": "@" + name}).alive()
        assert end.recv(100) == b"WATCHDOG=1"


def test_the_unit_is_well_formed_and_gives_the_service_little(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    assert program is not None, "install Debian's package systemd"
    unit = tmp_path / UNIT.name
    unit.write_text(re.sub("(?m)^ExecStart=[^ ]+", f"ExecStart={sys.executable}", UNIT.read_text()))
    verified = subprocess.run([program, "verify", str(unit)], capture_output=True, text=True, timeout=LIMIT_S)
    assert (verified.returncode, verified.stderr) == (0, "")
    words = [program, "security", "--offline=true", "--threshold=20", str(unit)]
    rated = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S)
    assert rated.returncode == 0, rated.stdout
