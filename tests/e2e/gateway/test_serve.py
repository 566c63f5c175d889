"""`penstock serve` as a process: the ready line, the log lines, stopping, and what goes wrong at start."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pika
import pika.exceptions
import pytest

from bench.load_amqp import Client
from tests.support.brokers import DEFAULT_LISTENERS, ROOT
from tests.support.documented import documented, placed
from tests.support.limits import LIMIT_S

pytestmark = pytest.mark.penstock_only("this is about the command penstock")

READY = re.compile(r"ready amqp=(\S+) mqtt=(\S+) data=(\S+)\n")
STOP_TIMEOUT_S = LIMIT_S
OFF = tuple(word for name in DEFAULT_LISTENERS for word in ("--set", f"{name}="))
FREE = ("--set", "amqp.listen=127.0.0.1:0", "--set", "mqtt.listen=127.0.0.1:0", *OFF)

Serve = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts `penstock serve` with the given arguments in a folder of the test's own."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "serve", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ready(process: subprocess.Popen[str]) -> tuple[str, str, str]:
    """Wait for the ready line and return its addresses and folder."""
    assert process.stdout is not None
    line = process.stdout.readline()
    found = READY.fullmatch(line)
    assert found is not None, line + process.communicate()[1]
    return found[1], found[2], found[3]


def stop(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str, str]:
    """Send a signal; returns the exit code and what else was written to standard output and error."""
    process.send_signal(number)
    out, err = process.communicate(timeout=STOP_TIMEOUT_S)
    return process.returncode, out, err


def failed(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a process that cannot start; returns the exit code and the last line of standard error."""
    out, err = process.communicate(timeout=STOP_TIMEOUT_S)
    assert "ready" not in out
    assert "Traceback" not in err
    return process.returncode, err.splitlines()[-1]


def amqp(address: str, user: str = "guest", password: str = "guest") -> pika.BlockingConnection:
    host, _, port = address.rpartition(":")
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(
        pika.ConnectionParameters(host.strip("[]"), int(port), credentials=credentials)
    )


# Start and stop


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_when_it_serves_and_stops_cleanly_on_a_signal(
    serve: Serve, tmp_path: Path, number: int
) -> None:
    process = serve("--data", "d", *FREE)
    amqp_address, mqtt_address, data = ready(process)
    for address in (amqp_address, mqtt_address):
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=LIMIT_S).close()
    assert data == str(tmp_path / "d")
    code, out, err = stop(process, number)
    assert (code, out) == (0, ""), err
    assert "Traceback" not in err


def test_it_stops_while_clients_are_connected(serve: Serve) -> None:
    process = serve(*FREE, "--set", "server.drain_timeout_s=1")
    connection = amqp(ready(process)[0])
    code, _, err = stop(process)
    assert code == 0, err
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connection.process_data_events(time_limit=5)


def test_a_client_that_stays_silent_holds_up_no_client_of_another_protocol(serve: Serve) -> None:
    process = serve(*FREE, "--set", "server.drain_timeout_s=3600")
    amqp_address, mqtt_address, _ = ready(process)
    with closing(Client(int(amqp_address.rpartition(":")[2]))) as silent:
        host, _, port = mqtt_address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=LIMIT_S) as client:
            client.sendall(b"\x10\x10\0\4MQTT\5\2\0\0\0\0\3one")
            assert client.recv(1024)[:1] == b"\x20", "CONNACK"
            process.send_signal(signal.SIGTERM)
            assert client.recv(1024)[:1] == b"\xe0", "DISCONNECT"
        silent.socket.setblocking(False)
        with pytest.raises(BlockingIOError):  # it was not cut before
            while silent.socket.recv(4096):
                pass
    assert process.wait(STOP_TIMEOUT_S) == 0


def test_it_starts_again_on_what_it_left(serve: Serve) -> None:
    process = serve(*FREE)
    with closing(amqp(ready(process)[0])) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("kept", durable=True)
        channel.basic_publish("", "kept", b"x", pika.BasicProperties(delivery_mode=2))
    assert stop(process)[0] == 0
    process = serve(*FREE)
    with closing(amqp(ready(process)[0])) as connection:
        method, _, body = connection.channel().basic_get("kept", auto_ack=True)
        assert body == b"x"
        assert method.redelivered is False
    assert stop(process)[0] == 0


def test_garbage_is_collected_while_it_serves(serve: Serve, tmp_path: Path) -> None:
    """A start switches the collector off; clients that come and go need it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import gc, os, signal\n"
        "def tell(*_):\n"
        "    said = f'collects={gc.isenabled()} frozen={gc.get_freeze_count() > 0}'\n"
        "    os.write(2, f'{said}\\n'.encode())\n"
        "signal.signal(signal.SIGUSR1, tell)\n"
    )
    process = serve(*FREE, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT / 'src'}")
    ready(process)
    process.send_signal(signal.SIGUSR1)
    assert "collects=True frozen=True" in stop(process)[2]


def test_a_listener_can_be_off(serve: Serve) -> None:
    process = serve(*OFF, "--set", "amqp.listen=127.0.0.1:0", "--set", "mqtt.listen=")
    assert process.stdout is not None
    line = process.stdout.readline()
    assert re.match(r"ready amqp=127\.0\.0\.1:\d+ data=", line), line
    assert stop(process)[0] == 0


def test_it_listens_on_ipv6(serve: Serve) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    process = serve(*OFF, "--set", "amqp.listen=[::1]:0", "--set", "mqtt.listen=[::1]:0")
    address = ready(process)[0]
    assert address.startswith("[::1]:")
    amqp(address).close()


def test_a_connection_writes_two_lines(serve: Serve) -> None:
    process = serve(*FREE)
    amqp(ready(process)[0]).close()
    _, _, err = stop(process)
    lines = [line for line in err.splitlines() if " INFO penstock.amqp connection " in line]
    assert len(lines) == 2, err
    assert all(" peer=127.0.0.1:" in line and " user=guest" in line for line in lines), lines
    assert "connection opened" in lines[0]
    assert "connection closed" in lines[1]


def test_log_lines_can_be_json(serve: Serve) -> None:
    process = serve(*FREE, PENSTOCK__SERVER__LOG_FORMAT="json")
    amqp(ready(process)[0]).close()
    _, _, err = stop(process)
    assert '"logger":"penstock.amqp"' in err
    assert all(line.startswith("{") for line in err.splitlines()), err


# Logging in


def test_users_of_the_configuration_may_log_in(serve: Serve) -> None:
    users = "[{name='ann', password='s3cret'}]"
    process = serve(*FREE, "--set", f"auth.users={users}", "--set", "auth.default_user=")
    address = ready(process)[0]
    amqp(address, "ann", "s3cret").close()
    for user, password in (("ann", "wrong"), ("guest", "guest")):
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            amqp(address, user, password)


def test_guest_may_log_in_from_this_machine_only(serve: Serve) -> None:
    outside = own_address()
    process = serve(
        *OFF, "--set", "amqp.listen=0.0.0.0:0", "--set", "mqtt.listen=", "--set", "log.data_dir=d"
    )
    assert process.stdout is not None
    port = re.match(r"ready amqp=0\.0\.0\.0:(\d+) ", process.stdout.readline())
    assert port is not None
    amqp(f"127.0.0.1:{port[1]}").close()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        amqp(f"{outside}:{port[1]}")


def own_address() -> str:
    """An address of this machine that is not loopback; skips when it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent: this asks the routing table
        except OSError:
            pytest.skip("this machine has no address but loopback")
        address: str = probe.getsockname()[0]
    if address.startswith("127."):
        pytest.skip("this machine has no address but loopback")
    return address


# Failures at start


@pytest.mark.parametrize("section", ["amqp", "mqtt"])
def test_a_port_that_is_taken(serve: Serve, section: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        code, line = failed(serve(*FREE, "--set", f"{section}.listen={address}"))
    assert code == 1
    assert line.startswith(f"penstock: error: {section}: {address} is taken by another process; ")
    (option,) = re.findall(r"--set (\S+HOST:PORT\S+)$", line)
    words = shlex.split(f"--set {option}".replace("HOST:PORT", "127.0.0.1:0"))
    process = serve(*FREE, *words)
    ready(process)
    assert stop(process)[0] == 0


def test_a_data_folder_that_is_in_use(serve: Serve) -> None:
    first = serve("--data", "d", *FREE)
    ready(first)
    code, line = failed(serve("--data", "d", *FREE))
    assert code == 1
    assert re.search(rf"locked by another penstock .*{first.pid}.*; stop that one, or .* --data DIR", line), (
        line
    )
    other = serve("--data", "other", *FREE)
    ready(other)
    assert stop(other)[0] == stop(first)[0] == 0


def test_a_data_folder_that_is_a_file(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "d").write_text("x")
    code, line = failed(serve("--data", "d", *FREE))
    assert code == 1
    assert re.match(r"penstock: error: cannot use the data folder .*d: .*; .* --data DIR", line), line


def test_a_disk_that_is_full(serve: Serve, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4k", "none", str(small)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"this user cannot make a small file system: {mounted.stderr.strip()}")
    try:
        code, line = failed(serve("--data", str(small / "d"), *FREE))
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)
    assert code == 1
    assert re.match(r"penstock: error: no space left for the data folder .*; .* --data DIR", line), line


def test_a_mistake_in_the_configuration(serve: Serve) -> None:
    code, line = failed(serve("--set", "log.segment_byte=1"))
    assert code == 2
    assert line.endswith("did you mean log.segment_bytes?")


def test_http_management_native_and_metrics_are_on_by_default(serve: Serve, tmp_path: Path) -> None:
    """Each at its address or, where another program has that, off with a warning; the gateway starts."""
    process = serve("--set", "amqp.listen=127.0.0.1:0", "--set", "mqtt.listen=127.0.0.1:0")
    assert process.stdout is not None
    words = dict(word.split("=", 1) for word in process.stdout.readline().split()[1:])
    second = serve("--data", "2", "--set", "amqp.listen=127.0.0.1:0", "--set", "mqtt.listen=127.0.0.1:0")
    assert second.stdout is not None
    others = dict(word.split("=", 1) for word in second.stdout.readline().split()[1:])
    _, _, warned = stop(second)
    for name, port in (("http", 15680), ("management", 15672), ("native", 15690), ("metrics", 15692)):
        # Another program of this machine may have the port while the test runs.
        assert words.get(name, f"127.0.0.1:{port}") == f"127.0.0.1:{port}"
        assert name not in others
        remedy = f'set {name}.listen to another address, or to "" for off'
        assert f"{name} is off: 127.0.0.1:{port} is taken by another process; {remedy}\n" in warned
    for name in ("http", "management", "metrics"):
        if name in words:
            for page in ("healthz", "readyz"):
                answer = httpx.get(f"http://{words[name]}/{page}", timeout=LIMIT_S)
                assert (answer.status_code, answer.text) == (200, "ok\n"), (name, page)
    assert stop(process)[0] == 0


def test_an_address_that_was_asked_for_must_be_free(serve: Serve) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        code, line = failed(serve(*FREE, "--set", f"management.listen={address}"))
    assert code == 1 and f"management: {address} is taken by another process" in line


def test_a_terminal_gets_a_line_for_each_listener(tmp_path: Path) -> None:
    terminal, own = os.openpty()
    words = [sys.executable, "-m", "penstock", "serve", "--data", str(tmp_path / "d"), *FREE]
    process = subprocess.Popen(
        [*words, "--set", "management.listen=127.0.0.1:0"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.DEVNULL,
        stdout=own,
        stderr=subprocess.DEVNULL,
    )
    os.close(own)
    try:
        text = b""
        while b"\nready " not in text:
            text += os.read(terminal, 4096)
        lines = [line.split() for line in text.decode().splitlines()]
        assert ["amqp", "mqtt", "management"] == [line[0] for line in lines[:3]]
        assert lines[0][1].startswith("amqp://127.0.0.1:") and lines[2][1].startswith("http://127.0.0.1:")
    finally:
        process.terminate()
        process.wait()
        os.close(terminal)


@pytest.mark.parametrize("words", documented(r"serve.*"), ids=" ".join)
def test_a_line_of_the_pages_starts_it(words: list[str], serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("")
    stand_ins = {"/etc/penstock/penstock.toml": "penstock.toml"}
    listeners = {f"PENSTOCK__{name.partition('.')[0].upper()}__LISTEN": "" for name in DEFAULT_LISTENERS}
    free = {"PENSTOCK__AMQP__LISTEN": "127.0.0.1:0", "PENSTOCK__MQTT__LISTEN": "127.0.0.1:0"}
    process = serve(*placed(words[1:], stand_ins), **listeners, **free)
    ready(process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(STOP_TIMEOUT_S) == 0
