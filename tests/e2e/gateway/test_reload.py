"""SIGHUP reads the configuration again; a mistake in it changes nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pika
import pytest
from pika.exceptions import AMQPConnectionError

from tests.reference import mqtt_frames as mqtt
from tests.support.limits import LIMIT_S

pytestmark = pytest.mark.penstock_only("this is about penstock's configuration")

CONFIG = """
[log]
data_dir = "{folder}/data"
traffic_retention_s = {kept}

[server]
workers = {workers}
log_level = "{level}"
max_connections = {connections}

[amqp]
listen = "127.0.0.1:{amqp}"

[mqtt]
listen = "127.0.0.1:{mqtt}"
acl_file = "{folder}/acl"
max_packet_bytes = {packet}
receive_maximum = {receive}

[auth]
users = [{users}]

# By default they are at ports that other tests' gateways may have.
[http]
listen = ""

[management]
listen = ""

[native]
listen = ""

[metrics]
listen = ""
"""


class Served:
    """A gateway with a configuration file."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder = folder
        self.values = dict(
            folder=folder, workers=workers, level="info", packet=1_000_000, users="", receive=100, kept=100
        )
        self.values["connections"] = 0
        self.values |= dict(zip(("amqp", "mqtt"), _free_ports(2), strict=True))
        self.acl("topic readwrite #")
        self.write()
        self.log = folder / "log"
        words = [sys.executable, "-m", "penstock", "serve", "--config", str(folder / "penstock.toml")]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(words, stderr=log, stdout=log)
        self.wait(lambda: "ready amqp=" in self.text())

    def write(self, **values: object) -> None:
        self.values |= values
        (self.folder / "penstock.toml").write_text(CONFIG.format(**self.values))

    def acl(self, *lines: str) -> None:
        (self.folder / "acl").write_text("\n".join(lines))

    def text(self) -> str:
        return self.log.read_text()

    def reload(self, says: str) -> str:
        """Send SIGHUP; the line with `says` that is new."""
        seen = len(self.text())
        os.kill(self.process.pid, signal.SIGHUP)
        self.wait(lambda: says in self.text()[seen:])
        return next(line for line in self.text()[seen:].splitlines() if says in line)

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.01)

    def connected(self) -> pika.BlockingConnection | None:
        """A connection of guest; None: it is refused."""
        try:
            return pika.BlockingConnection(pika.ConnectionParameters(port=self.values["amqp"]))
        except AMQPConnectionError:
            return None

    def refuses(self) -> bool:
        """Whether a connection of guest is refused."""
        connection = self.connected()
        if connection is not None:
            connection.close()
        return connection is None

    def logs_in(self, user: str, password: str) -> bool:
        credentials = pika.PlainCredentials(user, password)
        parameters = pika.ConnectionParameters("127.0.0.1", self.values["amqp"], credentials=credentials)
        try:
            pika.BlockingConnection(parameters).close()
        except AMQPConnectionError:
            return False
        return True

    def packet_limit(self) -> int:
        """The maximum packet size that CONNACK tells."""
        with socket.create_connection(
            ("127.0.0.1", int(str(self.values["mqtt"]))), timeout=LIMIT_S
        ) as client:
            client.sendall(mqtt.connect("limit", version=5, problems=True))
            connack = client.recv(1024)
        at = connack.index(b"\x27", 5)
        return int.from_bytes(connack[at + 1 : at + 5], "big")

    def may_subscribe(self, topic: str) -> bool:
        codes: list[bool] = []
        client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        client.on_subscribe = lambda *args: codes.append(not args[3][0].is_failure)
        client.connect("127.0.0.1", int(str(self.values["mqtt"])))
        client.loop_start()
        client.subscribe(topic)
        self.wait(lambda: bool(codes))
        client.disconnect()
        client.loop_stop()
        return codes[0]


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(params=[1, 2], ids=["alone", "workers"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path, request.param)
    try:
        yield made
    finally:
        made.process.terminate()
        assert made.process.wait(LIMIT_S) == 0, made.text()


def test_a_configuration_that_did_not_change_changes_nothing(served: Served) -> None:
    line = served.reload("the configuration was reloaded")
    assert "changed=- needs_restart=-" in line
    assert served.logs_in("guest", "guest")


def test_limits_hold_for_what_comes_from_now_on(served: Served) -> None:
    with contextlib.closing(
        pika.BlockingConnection(pika.ConnectionParameters(port=served.values["amqp"]))
    ) as held:
        served.write(connections=1)
        line = served.reload("the configuration was reloaded")
        assert "changed=server.max_connections needs_restart=-" in line
        workers = int(str(served.values["workers"]))
        with contextlib.ExitStack() as others:
            # The limit holds for each worker, and the system chooses among them.
            for _ in range(workers - 1):
                while not (more := served.connected()):
                    pass
                others.callback(more.close)
            served.wait(served.refuses)
        held.process_data_events(0)  # what is open stays
    served.write(connections=0)
    served.reload("the configuration was reloaded")
    served.wait(lambda: served.logs_in("guest", "guest"))


def test_users_log_level_and_acl_follow_the_files(served: Served) -> None:
    assert not served.logs_in("ann", "first") and served.may_subscribe("secret/x")
    served.write(users='{name = "ann", password = "first"}', level="debug")
    served.acl("topic readwrite open/#")
    line = served.reload("the configuration was reloaded")
    assert "changed=server.log_level,auth.users needs_restart=-" in line
    served.wait(lambda: served.logs_in("ann", "first"))
    served.wait(lambda: not served.may_subscribe("secret/x"))
    assert served.may_subscribe("open/x")
    served.write(users='{name = "ann", password = "second"}')
    served.reload("the configuration was reloaded")
    served.wait(lambda: served.logs_in("ann", "second"))
    assert not served.logs_in("ann", "first")


def test_limits_of_a_protocol_hold_for_new_connections(served: Served) -> None:
    assert served.packet_limit() == 1_000_000
    served.write(packet=2_000_000)
    line = served.reload("the configuration was reloaded")
    assert "changed=mqtt.max_packet_bytes needs_restart=-" in line
    served.wait(lambda: served.packet_limit() == 2_000_000)


def test_retention_follows_the_configuration(served: Served) -> None:
    served.write(kept=5)
    line = served.reload("the configuration was reloaded")
    assert "changed=log.traffic_retention_s needs_restart=-" in line
    served.write(kept=100)
    served.reload("the configuration was reloaded")


def test_options_that_need_a_restart_are_named(served: Served) -> None:
    served.write(receive=77)
    line = served.reload("the configuration was reloaded")
    assert "changed=mqtt.receive_maximum needs_restart=mqtt.receive_maximum" in line


@pytest.mark.parametrize("mistake", ["option", "acl"])
def test_a_mistake_changes_nothing_and_is_named(served: Served, mistake: str) -> None:
    served.write(
        users='{name = "ann", password = "first"}', **({"level": "loud"} if mistake == "option" else {})
    )
    if mistake == "acl":
        served.acl("topic readwrite open/#", "nonsense")
    line = served.reload("the configuration was not reloaded")
    assert ("server.log_level" if mistake == "option" else "acl") in line
    assert not served.logs_in("ann", "first") and served.may_subscribe("secret/x")
    assert served.logs_in("guest", "guest")
