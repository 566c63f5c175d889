"""The brokers of the connection benchmarks, with listeners for TCP, TLS and WebSocket as they have them."""

from __future__ import annotations

import resource
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.brokers import Broker, Gateway, Mosquitto, RabbitMQ, free_port
from tests.support.certificates import Authority

__all__ = ["BROKERS", "SETTLED", "Place", "allow_open_files", "started"]

SETTLED = "penstock-settled"
"""penstock with `log.confirm_settled`; only for rows where that matters."""
BROKERS = ("penstock", SETTLED, "mosquitto", "rabbitmq", "limit")


@dataclass(frozen=True, slots=True)
class Place:
    """A broker that runs. Ports are by protocol, "mqtt" or "amqp", and layer, "tcp", "tls" or "ws"."""

    pid: int
    ports: dict[tuple[str, str], int]
    broker: Broker | None = None
    """None: "limit" or "limit_uring"."""

    def port(self, protocol: str, layer: str = "tcp") -> int:
        """Where clients of this kind connect; 0: it does not speak that."""
        return self.ports.get((protocol, layer), 0)


def allow_open_files(wanted: int) -> int:
    """Let this process and the brokers that it starts open `wanted` files, if it may; how many it is now."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (max(hard, wanted), hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        except (ValueError, OSError):
            continue  # only root may raise the hard limit
        return most
    return hard


@contextmanager
def started(name: str, folder: Path) -> Iterator[Place]:
    """The broker of that name."""
    if name in ("limit", "limit_uring"):
        program = folder / name
        source = Path(__file__).with_name(f"{name}.c")
        subprocess.run(["cc", "-O2", "-o", str(program), str(source)], check=True)
        port = free_port()
        with subprocess.Popen([str(program), str(port)]) as process:
            try:
                _wait_for(port)
                yield Place(process.pid, {("mqtt", "tcp"): port})
            finally:
                process.kill()
        return
    with _broker(name, folder / name) as (broker, ports):
        yield Place(broker.pid, ports, broker)


@contextmanager
def _broker(name: str, folder: Path) -> Iterator[tuple[Broker, dict[tuple[str, str], int]]]:
    cert, key = Authority(folder / "certificates").server()
    for file in (cert, key):
        file.chmod(0o644)
    tls, ws = free_port(), free_port()
    broker: Broker
    if name == "mosquitto":
        options = (
            f"listener {tls} 127.0.0.1",
            f"certfile {cert}",
            f"keyfile {key}",
            f"listener {ws} 127.0.0.1",
            "protocol websockets",
        )
        broker = Mosquitto(folder, options=options)
        ports = {("mqtt", "tls"): tls, ("mqtt", "ws"): ws}
    elif name == "rabbitmq":
        lines = [f"listeners.ssl.1 = 127.0.0.1:{tls}"]
        lines += [f"ssl_options.certfile = {cert}", f"ssl_options.keyfile = {key}"]
        broker = RabbitMQ(folder, options=tuple(lines))
        ports = {("amqp", "tls"): tls}
    else:
        settings = {
            "mqtt.tls_listen": f"127.0.0.1:{tls}",
            "mqtt.ws_listen": f"127.0.0.1:{ws}",
            "amqp.tls_listen": "127.0.0.1:0",
            "tls.cert_file": str(cert),
            "tls.key_file": str(key),
        }
        if name == SETTLED:
            settings["log.confirm_settled"] = "true"
        broker = Gateway(folder, settings=settings)
        ports = {("mqtt", "tls"): tls, ("mqtt", "ws"): ws}
    with broker:
        if isinstance(broker, Gateway):
            ports["amqp", "tls"] = broker.ports["amqps"]
        for protocol in broker.speaks:
            ports[protocol, "tcp"] = broker.amqp_port if protocol == "amqp" else broker.mqtt_port
        yield broker, ports


def _wait_for(port: int) -> None:
    end = time.monotonic() + 10.0
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return
