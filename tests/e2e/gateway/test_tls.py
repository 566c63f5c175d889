"""TLS listeners: unmodified clients, client certificates, logins without a password, reload."""

from __future__ import annotations

import asyncio
import os
import queue
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import aio_pika
import httpx
import paho.mqtt.client as paho
import pika
import pika.credentials
import pika.exceptions
import pytest

from tests.support.brokers import Gateway
from tests.support.certificates import Authority, Pair
from tests.support.limits import LIMIT_S

pytestmark = [
    pytest.mark.penstock_only("this is about penstock's listeners"),
]

PLANT = "O=plant,CN=pump"


def settings(authority: Authority, pair: Pair, **more: str) -> dict[str, str]:
    return {
        "amqp.tls_listen": "127.0.0.1:0",
        "mqtt.tls_listen": "127.0.0.1:0",
        "http.tls_listen": "127.0.0.1:0",
        "management.tls_listen": "127.0.0.1:0",
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
        "tls.ca_file": str(authority.file),
        "tls.verify_client": "optional",
        "mqtt.cert_login": "true",
        "auth.users": f"[{{name='{PLANT}', password='unused'}}]",
        **{key.replace("__", "."): value for key, value in more.items()},
    }


@pytest.fixture(scope="module")
def gateway(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("gateway")
    with Gateway(folder, settings=settings(authority, authority.server())) as running:
        yield running


def context(authority: Authority, client: Pair | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(authority.file))
    if client is not None:
        made.load_cert_chain(client.cert, client.key)
    return made


# AMQP


def amqp(
    gateway: Gateway, tls: ssl.SSLContext, credentials: object = pika.ConnectionParameters._DEFAULT
) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1",
            gateway.ports["amqps"],
            ssl_options=pika.SSLOptions(tls, "localhost"),
            credentials=credentials,
        )
    )


def test_pika_publishes_and_consumes_large_and_small(
    gateway: Gateway, authority: Authority, unique: str
) -> None:
    with closing(amqp(gateway, context(authority))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(unique)
        bodies = [b"", b"x", b"y" * 16384, bytes(range(256)) * 8192]
        for body in bodies:
            channel.basic_publish("", unique, body)
        got = [channel.basic_get(unique, auto_ack=True)[2] for _ in bodies]
        assert got == bodies


async def test_aio_pika_logs_in_by_certificate(gateway: Gateway, authority: Authority, unique: str) -> None:
    pump = authority.client("pump")
    url = f"amqps://127.0.0.1:{gateway.ports['amqps']}/?auth=external&cafile={authority.file}"
    url += f"&certfile={pump.cert}&keyfile={pump.key}"
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel()
        declared = await channel.declare_queue(unique)
        await channel.default_exchange.publish(aio_pika.Message(b"x", user_id=PLANT), unique)
        message = await declared.get(timeout=LIMIT_S)
        assert message.body == b"x" and message.user_id == PLANT
        await message.ack()


def test_pika_logs_in_by_certificate(gateway: Gateway, authority: Authority) -> None:
    external = pika.credentials.ExternalCredentials()
    amqp(gateway, context(authority, authority.client("pump")), external).close()


def test_a_certificate_of_nobody_does_not_log_in(gateway: Gateway, authority: Authority) -> None:
    tls = context(authority, authority.client("stranger"))
    with pytest.raises(pika.exceptions.ProbableAuthenticationError, match="mechanism EXTERNAL"):
        amqp(gateway, tls, pika.credentials.ExternalCredentials())


def test_external_is_not_offered_without_a_certificate(gateway: Gateway, authority: Authority) -> None:
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        amqp(gateway, context(authority), pika.credentials.ExternalCredentials())


def test_a_wrong_password_is_refused_over_tls_too(gateway: Gateway, authority: Authority) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        amqp(gateway, context(authority), pika.PlainCredentials("guest", "wrong"))


# MQTT


def mqtt(
    gateway: Gateway, tls: ssl.SSLContext, *, user: str | None = None, protocol: int = paho.MQTTv5
) -> tuple[paho.Client, queue.Queue[tuple[str, object]]]:
    """A paho client under way, and what happens to it: ("connected", reason), ("message", payload)."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=protocol, reconnect_on_failure=False)  # type: ignore[arg-type]
    happened: queue.Queue[tuple[str, object]] = queue.Queue()
    client.on_connect = lambda c, u, flags, reason, props: happened.put(("connected", reason.value))
    client.on_message = lambda c, u, message: happened.put(("message", message.payload))
    client.on_subscribe = lambda *_: happened.put(("subscribed", None))
    client.tls_set_context(tls)
    if user is not None:
        client.username_pw_set(user, user)
    client.connect("localhost", gateway.ports["mqtts"])
    client.loop_start()
    return client, happened


def end(client: paho.Client) -> None:
    client.disconnect()
    client.loop_stop()


@pytest.mark.parametrize("protocol", [paho.MQTTv311, paho.MQTTv5])
def test_paho_sends_itself_messages(
    gateway: Gateway, authority: Authority, unique: str, protocol: int
) -> None:
    client, happened = mqtt(gateway, context(authority), user="guest", protocol=protocol)
    assert happened.get(timeout=LIMIT_S) == ("connected", 0)
    client.subscribe(unique, 1)
    assert happened.get(timeout=LIMIT_S)[0] == "subscribed"
    payloads = [b"x", bytes(range(256)) * 2000]
    for payload in payloads:
        client.publish(unique, payload, 1)
    assert [happened.get(timeout=LIMIT_S)[1] for _ in payloads] == payloads
    end(client)


def test_a_certificate_is_an_mqtt_login(gateway: Gateway, authority: Authority) -> None:
    client, happened = mqtt(gateway, context(authority, authority.client("pump")))
    assert happened.get(timeout=LIMIT_S) == ("connected", 0)
    end(client)
    lines = (f"user={PLANT}", f'user="{PLANT}"')
    wait_for(lambda: any(line in gateway.log_text() for line in lines))
    client, happened = mqtt(gateway, context(authority, authority.client("stranger")))
    assert happened.get(timeout=LIMIT_S) == ("connected", 0x86)
    end(client)


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="apt-get install mosquitto-clients")
def test_mosquitto_clients(gateway: Gateway, authority: Authority, unique: str) -> None:
    common = ["-h", "localhost", "-p", str(gateway.ports["mqtts"]), "--cafile", str(authority.file)]
    common += ["-t", unique, "--tls-alpn", "mqtt"]
    many = "\n".join(str(i) for i in range(500))
    subprocess.run(
        ["mosquitto_pub", *common, "-r", "-m", "kept", "-q", "1"],
        check=True,
        timeout=LIMIT_S,
        capture_output=True,
    )
    with subprocess.Popen(
        ["stdbuf", "-oL", "mosquitto_sub", *common, "-C", "501", "-W", "20"],
        stdout=subprocess.PIPE,
        text=True,
    ) as reading:
        assert reading.stdout is not None
        assert reading.stdout.readline() == "kept\n"
        subprocess.run(["mosquitto_pub", *common, "-l"], input=many, text=True, check=True, timeout=LIMIT_S)
        assert reading.stdout.read() == many + "\n"


# Accepted clients


def test_a_client_that_does_not_know_the_ca_goes_away(
    gateway: Gateway, authority: Authority, tmp_path: Path
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        amqp(gateway, context(Authority(tmp_path, "other CA")))
    amqp(gateway, context(authority)).close()


def refused(gateway: Gateway, port: int, tls: ssl.SSLContext) -> None:
    """The connection ends in or after the handshake (in TLS 1.3 a client learns of it after its own part)."""
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as plain:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            with tls.wrap_socket(plain, server_hostname="localhost") as wrapped:
                while wrapped.recv(1):
                    pass
                raise ConnectionResetError("closed")


def shaken(port: int, tls: ssl.SSLContext) -> None:
    """The handshake is done on both sides: in TLS 1.2 the server has seen the certificate by then."""
    tls.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as plain:
        tls.wrap_socket(plain, server_hostname="localhost").close()


def test_a_certificate_that_is_shown_must_be_valid(
    gateway: Gateway, authority: Authority, tmp_path: Path
) -> None:
    port = gateway.ports["mqtts"]
    refused(gateway, port, context(authority, authority.client("late", expired=True)))
    refused(gateway, port, context(authority, Authority(tmp_path, "other CA").client("pump")))
    wait_for(lambda: gateway.log_text().count("the client's certificate is refused") >= 2)
    assert "the client's certificate is refused: certificate has expired" in gateway.log_text()


def test_a_certificate_can_be_required(authority: Authority, tmp_path: Path) -> None:
    more = {"tls__verify_client": "required"}
    with Gateway(tmp_path, settings=settings(authority, authority.server("strict"), **more)) as strict:
        refused(strict, strict.ports["amqps"], context(authority))
        amqp(strict, context(authority, authority.client("anybody"))).close()
        wait_for(lambda: "peer did not return a certificate" in strict.log_text())


def test_a_revoked_certificate_is_refused_on_every_listener(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    good, bad = authority.client("good"), authority.client("bad")
    lists = authority.revoke(bad)
    more = {"tls__crl_file": str(lists), "tls__verify_client": "required", "mqtt__wss_listen": "127.0.0.1:0"}
    with Gateway(tmp_path / "g", settings=settings(authority, authority.server(), **more)) as gateway:
        ports = [gateway.ports[name] for name in ("amqps", "mqtts", "wss", "http_tls", "management_tls")]
        for port in ports:
            shaken(port, context(authority, good))
            refused(gateway, port, context(authority, bad))
        reason = "the client's certificate is refused: certificate revoked"
        wait_for(lambda: gateway.log_text().count(reason) == len(ports))
        # A new list holds from the next connection on, and one that is over lets nobody in.
        authority.revoke(good)
        os.kill(gateway.pid, signal.SIGHUP)
        wait_for(lambda: gateway.log_text().count("the certificates were reloaded") == 1)
        shaken(ports[1], context(authority, bad))
        refused(gateway, ports[1], context(authority, good))
        authority.revoke(expired=True)
        os.kill(gateway.pid, signal.SIGHUP)
        wait_for(lambda: gateway.log_text().count("the certificates were reloaded") == 2)
        refused(gateway, ports[1], context(authority, good))
        wait_for(lambda: "the client's certificate is refused: CRL has expired" in gateway.log_text())


def test_plain_text_on_a_tls_port_and_tls_on_a_plain_port(gateway: Gateway, authority: Authority) -> None:
    with socket.create_connection(("127.0.0.1", gateway.ports["amqps"]), timeout=LIMIT_S) as plain:
        plain.sendall(b"AMQP\0\0\x09\x01")
        assert plain.recv(100)[:1] in (b"", b"\x15")
    with socket.create_connection(("127.0.0.1", gateway.amqp_port), timeout=LIMIT_S) as plain:
        # The first bytes of a TLS client.
        plain.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500))
        assert b"".join(iter(lambda: plain.recv(100), b"")) == b"AMQP\0\0\x09\x01"
    with socket.create_connection(("127.0.0.1", gateway.mqtt_port), timeout=LIMIT_S) as plain:
        plain.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500))
        assert plain.recv(100) == b""


# The files


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def serial(port: int, authority: Authority) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as plain:
        with context(authority).wrap_socket(plain, server_hostname="localhost") as wrapped:
            certificate = wrapped.getpeercert()
            assert certificate is not None
            return str(certificate["serialNumber"])


def test_certificates_are_reloaded_while_it_serves(authority: Authority, tmp_path: Path) -> None:
    pair = authority.server("mine")
    with Gateway(tmp_path, settings=settings(authority, pair)) as gateway:
        port = gateway.ports["amqps"]
        os.kill(gateway.pid, signal.SIGHUP)
        wait_for(lambda: "the certificates were reloaded" in gateway.log_text())
        first = serial(port, authority)
        with closing(amqp(gateway, context(authority))) as connection:
            authority.server("mine")
            wait_for(lambda: serial(port, authority) != first)
            connection.channel().close()
            pair.key.write_text("gone")
            wait_for(lambda: "the certificates were not reloaded" in gateway.log_text())
            assert f"tls.key_file: {pair.key} holds no private key" in gateway.log_text()
            assert serial(port, authority) != first


def test_many_handshakes_at_once(gateway: Gateway, authority: Authority) -> None:
    failures: list[BaseException] = []
    tls = context(authority)

    def one() -> None:
        try:
            amqp(gateway, tls).close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


async def test_a_publisher_that_leaves_at_once_loses_nothing(
    gateway: Gateway, authority: Authority, unique: str
) -> None:
    """QoS 0 and goodbye in one breath: what came before the end of the stream is handled."""
    reading, happened = mqtt(gateway, context(authority), user="guest")
    assert happened.get(timeout=LIMIT_S) == ("connected", 0)
    reading.subscribe(unique, 0)
    assert happened.get(timeout=LIMIT_S)[0] == "subscribed"
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", gateway.ports["mqtts"], ssl=context(authority), server_hostname="localhost"
    )
    writer.write(b"\x10\x0c\0\4MQTT\4\2\0<\0\0")
    assert await reader.readexactly(4) == b"\x20\2\0\0"
    topic = len(unique).to_bytes(2, "big") + unique.encode()
    body = topic + bytes(10_000)
    size = len(body)
    writer.write((b"\x30" + bytes([size % 128 | 128, size // 128]) + body) * 300 + b"\xe0\0")
    writer.close()
    assert [happened.get(timeout=LIMIT_S)[0] for _ in range(300)] == ["message"] * 300
    end(reading)


# HTTP


@pytest.mark.parametrize("http2", [False, True])
def test_http_clients_choose_their_version_in_the_handshake(
    gateway: Gateway, authority: Authority, http2: bool
) -> None:
    management, data = gateway.ports["management_tls"], gateway.ports["http_tls"]
    with httpx.Client(
        verify=context(authority), http1=not http2, http2=http2, auth=("guest", "guest"), timeout=LIMIT_S
    ) as client:
        seen = client.get(f"https://localhost:{management}/api/overview")
        assert (seen.status_code, seen.http_version) == (200, "HTTP/2" if http2 else "HTTP/1.1")
        sent = client.post(
            f"https://localhost:{data}/v1/vhosts/%2F/exchanges/amq.fanout/messages", json={"value": "x"}
        )
        assert sent.status_code == 200


def test_the_management_api_tells_which_connections_are_encrypted(
    authority: Authority, gateway: Gateway
) -> None:
    parameters = pika.ConnectionParameters(
        "localhost", gateway.ports["amqps"], ssl_options=pika.SSLOptions(context(authority), "localhost")
    )
    url = f"https://localhost:{gateway.ports['management_tls']}/api/connections"
    with pika.BlockingConnection(parameters):
        found = httpx.get(url, auth=("guest", "guest"), verify=context(authority), timeout=LIMIT_S).json()
    (one,) = [each for each in found if each["protocol"] == "AMQP 0-9-1"]
    assert one["ssl"] is True and one["ssl_protocol"].startswith("tlsv1.") and one["ssl_cipher"]
