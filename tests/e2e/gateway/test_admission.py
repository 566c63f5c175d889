"""Proxies, limits per address and a lack of descriptors, on a gateway that runs."""

from __future__ import annotations

import resource
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.brokers import Gateway
from tests.support.certificates import Authority
from tests.support.limits import LIMIT_S

pytestmark = [pytest.mark.penstock_only("this is about penstock's listeners")]

HEADER = b"AMQP\0\0\x09\x01"
CONNECT = b"\x10\x0c\0\4MQTT\4\2\0<\0\0"
ACCEPTED, NOT_AUTHORIZED = b"\x20\2\0\0", b"\x20\2\0\5"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def connect(port: int, first: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
    client.sendall(first)
    return client


def answer(port: int, first: bytes) -> bytes:
    """The first bytes of the server's answer; b"" = it closed."""
    with connect(port, first) as client:
        try:
            return client.recv(4)
        except ConnectionResetError:
            return b""


def said(source: str) -> bytes:
    return f"PROXY TCP4 {source} 198.51.100.1 51000 1883\r\n".encode()


def test_rules_about_addresses_look_at_who_is_behind_the_proxy(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    pair = authority.server()
    settings = {
        "server.proxy_networks": "127.0.0.0/8",
        "server.max_connections_per_address": "2",
        "mqtt.tls_listen": "127.0.0.1:0",
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
    }
    with Gateway(tmp_path / "gateway", settings=settings) as gateway:
        port = gateway.mqtt_port
        # Anonymous clients come from loopback only: the proxy is there, those for whom it speaks are not.
        assert answer(port, said("192.0.2.7") + CONNECT) == NOT_AUTHORIZED
        assert answer(port, said("127.0.0.1") + CONNECT) == ACCEPTED
        assert answer(port, b"PROXY UNKNOWN\r\n" + CONNECT) == NOT_AUTHORIZED
        local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"
        assert answer(port, local + CONNECT) == ACCEPTED
        # A proxy that says nothing for whom is not let in.
        assert answer(port, CONNECT) == b""
        wait_for(lambda: "no PROXY header" in gateway.log_text())
        wait_for(lambda: "peer=192.0.2.7:51000" in gateway.log_text())
        # The header comes before TLS.
        with connect(gateway.ports["mqtts"], said("127.0.0.1")) as plain:
            context = ssl.create_default_context(cafile=str(authority.file))
            with context.wrap_socket(plain, server_hostname="localhost") as client:
                client.sendall(CONNECT)
                assert client.recv(4) == ACCEPTED
        # Two at once from one address, whatever the protocol.
        with ExitStack() as stack:
            for at in (port, gateway.amqp_port):
                first = said("192.0.2.9") + (HEADER if at == gateway.amqp_port else b"")
                stack.enter_context(connect(at, first))
            wait_for(lambda: answer(gateway.amqp_port, said("192.0.2.9") + HEADER) == b"")
            assert answer(gateway.amqp_port, said("192.0.2.10") + HEADER) == b"\x01\0\0\0"
            wait_for(lambda: "server.max_connections_per_address is reached" in gateway.log_text())
        wait_for(lambda: answer(gateway.amqp_port, said("192.0.2.9") + HEADER) == b"\x01\0\0\0")


def test_connections_over_a_rate_are_refused_and_counted(tmp_path: Path) -> None:
    settings = {
        "server.proxy_networks": "127.0.0.0/8",
        "server.accept_rate_per_address": "1",
        "metrics.listen": "127.0.0.1:0",
    }
    with Gateway(tmp_path, settings=settings) as gateway:
        answers = [answer(gateway.mqtt_port, said("192.0.2.9") + CONNECT) for _ in range(4)]
        assert answers[:2] == [NOT_AUTHORIZED] * 2 and b"" in answers, "a burst of two seconds"
        assert answer(gateway.mqtt_port, said("192.0.2.10") + CONNECT) == NOT_AUTHORIZED
        get = said("127.0.0.1") + b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        with connect(gateway.ports["metrics"], get) as client:
            page = client.makefile("rb").read().decode()
        for limit, refused in (
            ("server.accept_rate_per_address", answers.count(b"")),
            ("server.max_connections_per_address", 0),
            ("server.max_connections", 0),
        ):
            assert f'penstock_connections_refused_total{{limit="{limit}"}} {refused}\n' in page
        wait_for(lambda: "server.accept_rate_per_address is reached" in gateway.log_text())


def test_a_header_from_elsewhere_is_no_header(tmp_path: Path) -> None:
    with Gateway(tmp_path, settings={"server.proxy_networks": "192.0.2.0/24"}) as gateway:
        assert answer(gateway.mqtt_port, said("127.0.0.1") + CONNECT) == b""
        with connect(gateway.amqp_port, said("127.0.0.1") + HEADER) as client:
            assert client.recv(100) == HEADER, "what speaks another protocol is told which one is spoken"
        assert answer(gateway.mqtt_port, CONNECT) == ACCEPTED


def test_a_lack_of_descriptors_pauses_accepting_and_ends_nothing(tmp_path: Path) -> None:
    with Gateway(tmp_path) as gateway, ExitStack() as stack:
        first = stack.enter_context(connect(gateway.mqtt_port, CONNECT))
        assert first.recv(4) == ACCEPTED
        _, hard = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)
        used = len(list(Path(f"/proc/{gateway.pid}/fd").iterdir()))
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (used + 5, hard))
        more = [stack.enter_context(connect(gateway.mqtt_port, CONNECT)) for _ in range(20)]
        wait_for(lambda: "cannot accept connections for now" in gateway.log_text())
        first.sendall(b"\xc0\0")
        assert first.recv(2) == b"\xd0\0", "who is connected is served"
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (hard, hard))
        for client in more:
            assert client.recv(4) == ACCEPTED, "those that waited are accepted then"


def test_the_limit_of_open_files_is_raised_to_what_is_allowed(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, used + 100), hard))
    try:
        gateway = Gateway(tmp_path)
        gateway.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with gateway:
        assert resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE) == (hard, hard)
