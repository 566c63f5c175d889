"""TLS: contexts made of files, the layer of a connection, and whom a certificate names."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from penstock.config.tls_hosts import TlsHost
from penstock.errors import ConfigError
from penstock.protocols.net.connection import ARENA
from penstock.protocols.net.connection_context import Limits
from penstock.protocols.tls.contexts import Tls, TlsOptions, login_name
from tests.support.certificates import Authority
from tests.support.echo import EchoServer, packet
from tests.support.limits import LIMIT_S


class Stack(EchoServer):
    """With TLS."""

    def __init__(self, folder: Path, limits: Limits | None) -> None:
        self.authority = Authority(folder)
        self.pair = self.authority.server("server", "one.example.org")
        self.tls = Tls(TlsOptions(cert_file=str(self.pair.cert), key_file=str(self.pair.key)))
        super().__init__(limits, option="tls_listen", tls=self.tls.layer("mqtt"))

    def client_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.file))

    async def client(
        self, context: ssl.SSLContext | None = None, name: str = "localhost"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = context or self.client_context()
        return await asyncio.open_connection(
            "127.0.0.1", self.listener.port, ssl=context, server_hostname=name
        )

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.listener.port)


Scenario = Callable[[Stack], Awaitable[None]]


def on_uvloop(limits: Limits | None = None) -> Callable[[Scenario], Callable[[Path], None]]:
    """Run the scenario against a listener, on the loop that the gateway runs on."""

    def decorate(scenario: Scenario) -> Callable[[Path], None]:
        async def main(folder: Path) -> None:
            stack = Stack(folder, limits)
            try:
                async with asyncio.timeout(LIMIT_S):
                    await scenario(stack)
            finally:
                await stack.listener.drain(5)

        return lambda tmp_path: uvloop.run(main(tmp_path))

    return decorate


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


# The layer


@on_uvloop()
async def test_packets_of_all_sizes_pass_both_ways(stack: Stack) -> None:
    reader, writer = await stack.client()
    writer.write(packet(b"login"))
    await reader.readexactly(4)
    bodies = [*(bytes([size % 251]) * size for size in (0, 1, 4096, 16384, 16385, 3 * len(ARENA)))]
    writer.write(b"".join(map(packet, bodies)))
    await reader.readexactly(4 * len(bodies))
    assert stack.made[0].packets[1:] == bodies
    answer = os.urandom(1 << 20)
    stack.made[0].out.write(answer)
    stack.made[0].dirty()
    assert await reader.readexactly(len(answer)) == answer
    await closed(writer)


@on_uvloop()
async def test_records_cut_anywhere_are_put_together(stack: Stack) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = stack.client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    reader, writer = await stack.raw()
    shaken = False
    while not shaken:
        try:
            tls.do_handshake()
            shaken = True
        except ssl.SSLWantReadError:
            pass
        for byte in outgoing.read():
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        if not shaken:
            incoming.write(await reader.read(65536))
    tls.write(packet(b"login") + packet(b"x" * 300))
    for byte in outgoing.read():
        writer.write(bytes([byte]))
        await writer.drain()
    async with asyncio.timeout(LIMIT_S):
        while len(stack.made[0].packets) < 2:
            await asyncio.sleep(0.001)
    assert stack.made[0].packets == [b"login", b"x" * 300]
    await closed(writer)


@on_uvloop()
async def test_input_before_the_end_is_handled_even_when_reading_was_paused(stack: Stack) -> None:
    reader, writer = await stack.client()
    writer.write(packet(b"login"))
    await reader.readexactly(4)
    echo = stack.made[0]
    echo.pause_reading("test")
    bodies = [bytes([65 + i]) * 5000 for i in range(40)]
    writer.write(b"".join(map(packet, bodies)))
    await writer.drain()
    writer.close()
    await asyncio.sleep(0.05)
    assert echo.packets == [b"login"]
    echo.resume_reading("test")
    assert await stack.reason() == "the client closed the socket"
    assert echo.packets == [b"login", *bodies]


@on_uvloop()
async def test_a_paused_connection_is_not_read_from_the_socket(stack: Stack) -> None:
    reader, writer = await stack.client()
    writer.write(packet(b"login"))
    await reader.readexactly(4)
    echo = stack.made[0]
    echo.pause_reading("test")
    writer.write(packet(bytes(64 << 20)))
    await asyncio.sleep(0.1)
    assert echo.bytes_in < 1 << 20
    writer.transport.abort()
    echo.resume_reading("test")
    await stack.reason()


@on_uvloop()
async def test_the_last_output_arrives_before_the_close(stack: Stack) -> None:
    # Read with a blocking socket: streams on uvloop lose what is not read yet when the end comes.
    def read_all() -> bytes:
        with socket.create_connection(("127.0.0.1", stack.listener.port)) as plain:
            with stack.client_context().wrap_socket(plain, server_hostname="localhost") as client:
                client.sendall(packet(b"login"))
                return b"".join(iter(lambda: client.recv(65536), b""))

    reading = asyncio.create_task(asyncio.to_thread(read_all))
    while not stack.made or stack.made[0].user is None:
        await asyncio.sleep(0.001)
    stack.made[0].out.write(b"goodbye" * 100_000)
    stack.made[0].close("done")
    assert (await reading)[4:] == b"goodbye" * 100_000


@on_uvloop(Limits(greeting_timeout_s=0.05))
async def test_a_client_that_says_nothing_is_dropped_in_time(stack: Stack) -> None:
    reader, writer = await stack.raw()
    assert await reader.read() == b""
    assert await stack.reason() == "no complete first packet in time"
    await closed(writer)


@on_uvloop(Limits(greeting_timeout_s=2.0))
async def test_a_client_that_stops_after_the_handshake_is_dropped_in_time(stack: Stack) -> None:
    reader, writer = await stack.client()
    assert await reader.read() == b""
    assert await stack.reason() == "no complete first packet in time"
    await closed(writer)


@on_uvloop()
async def test_plain_text_is_no_handshake(stack: Stack) -> None:
    connect = b"\x10\x0f\0\4MQTT\4\2\0<\0\3abc"
    for first in (b"AMQP\0\0\x09\x01", connect, b"GET / HTTP/1.1\r\n\r\n", bytes(64)):
        reader, writer = await stack.raw()
        writer.write(first)
        answer = await reader.read()
        assert answer[:1] in (b"", b"\x15"), "an alert or nothing"
        assert "the TLS handshake failed" in await stack.reason()
        await closed(writer)


@on_uvloop(Limits(login_bytes=1000))
async def test_a_handshake_may_not_be_endless(stack: Stack) -> None:
    reader, writer = await stack.raw()
    # The beginning of a hello that says it is 16,000 bytes long, in records of 100 bytes.
    hello = b"\x01\x00\x3e\x80" + bytes(16000)
    for start in range(0, 1500, 100):
        part = hello[start : start + 100]
        writer.write(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part)
    with suppress(ConnectionError):
        await reader.read()
    reason = await stack.reason()
    assert reason in ("too many bytes in the TLS handshake",) or "handshake failed" in reason
    await closed(writer)


@on_uvloop()
async def test_old_versions_are_refused(stack: Stack) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.warns(DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        await stack.client(context)
    assert "the TLS handshake failed" in await stack.reason()


@on_uvloop()
async def test_the_application_protocol_is_agreed_on(stack: Stack) -> None:
    for offered, agreed in ((["mqtt"], "mqtt"), (["http/1.1"], None), ([], None)):
        context = stack.client_context()
        if offered:
            context.set_alpn_protocols(offered)
        _, writer = await stack.client(context)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == agreed
        await closed(writer)


# Contexts


async def served(stack: Stack, name: str) -> str:
    """The common name of the certificate shown to a client that asks for `name`."""
    context = stack.client_context()
    context.check_hostname = False
    _, writer = await stack.client(context, name)
    subject = writer.get_extra_info("peercert")["subject"]
    await closed(writer)
    return str(subject[0][0][1])


@on_uvloop()
async def test_the_name_asked_for_chooses_the_certificate(stack: Stack) -> None:
    two = stack.authority.server("two", "two.example.org")
    wild = stack.authority.server("wild", "*.example.net")
    hosts = (
        TlsHost(name="two.example.org", cert_file=str(two.cert), key_file=str(two.key)),
        TlsHost(name="*.example.net", cert_file=str(wild.cert), key_file=str(wild.key)),
    )
    stack.tls.options = replace(stack.tls.options, hosts=hosts)  # type: ignore[misc]
    stack.tls.reload()
    assert await served(stack, "TWO.example.org") == "two.example.org"
    assert await served(stack, "any.example.net") == "*.example.net"
    assert await served(stack, "a.b.example.net") == "one.example.org"
    assert await served(stack, "localhost") == "one.example.org"


@on_uvloop()
async def test_a_new_certificate_holds_for_new_connections(stack: Stack) -> None:
    reader, writer = await stack.client()
    assert not stack.tls.changed()
    stack.authority.server("server", "new.example.org")
    assert stack.tls.changed()
    stack.tls.reload()
    assert not stack.tls.changed()
    assert await served(stack, "localhost") == "new.example.org"
    writer.write(packet(b"login"))
    await reader.readexactly(4)
    await closed(writer)


@on_uvloop()
async def test_files_that_do_not_fit_leave_the_old_ones_in_force(stack: Stack) -> None:
    other = stack.authority.server("other", "other.example.org")
    stack.pair.cert.write_bytes(other.cert.read_bytes())
    with pytest.raises(ConfigError, match=r"server\.key is not the key of the certificate in .*server\.pem"):
        stack.tls.reload()
    assert not stack.tls.changed(), "it is said once"
    assert await served(stack, "localhost") == "one.example.org"
    stack.pair.key.write_bytes(other.key.read_bytes())
    assert stack.tls.changed()
    stack.tls.reload()
    assert await served(stack, "localhost") == "other.example.org"


MISTAKES = {
    "no certificate": ({"cert_file": "{0}/none.pem"}, r"tls\.cert_file: cannot read .*none\.pem"),
    "no key": ({"key_file": "{0}/none.key"}, r"tls\.key_file: cannot read .*none\.key"),
    "key as certificate": ({"cert_file": "{0}/server.key"}, r"tls\.cert_file: .*server\.key holds no cert"),
    "certificate as key": ({"key_file": "{0}/server.pem"}, r"tls\.key_file: .*server\.pem holds no private"),
    "key not in cert_file": ({"key_file": ""}, r"tls\.key_file: .*server\.pem holds no private key"),
    "key of another": ({"key_file": "{0}/other.key"}, r"tls\.key_file: .*other\.key is not the key of"),
    "revoked, and nobody is asked": (
        {"ca_file": "{0}/server.pem", "crl_file": "{0}/server.pem"},
        r'tls\.crl_file: .*verify_client is "none"',
    ),
    "no list of revoked ones": (
        {"ca_file": "{0}/server.pem", "verify_client": "optional", "crl_file": "{0}/server.pem"},
        r"tls\.crl_file: .*server\.pem holds no list of revoked certificates",
    ),
    "no CA": ({"verify_client": "required"}, r"tls\.ca_file: .*no CA is trusted"),
    "CA unreadable": ({"ca_file": "{0}/none.pem"}, r"tls\.ca_file: cannot read .*none\.pem"),
    "cipher": ({"ciphers": "ROT13"}, r"tls\.ciphers: OpenSSL knows no cipher in 'ROT13'"),
    "garbage": ({"cert_file": "{0}/garbage.pem"}, r"tls\.key_file: .*garbage\.pem and .*cannot be used"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_names_the_file_and_the_key(tmp_path: Path, mistake: str) -> None:
    authority = Authority(tmp_path)
    authority.server("other")
    pair = authority.server()
    garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    (tmp_path / "garbage.pem").write_text(garbage)
    options, message = MISTAKES[mistake]
    given = {key: value.format(tmp_path) for key, value in options.items()}
    files = {"cert_file": str(pair.cert), "key_file": str(pair.key)}
    with pytest.raises(ConfigError, match=message):
        Tls(TlsOptions(**{**files, **given}))  # type: ignore[arg-type]


# Names

CERTIFICATE = {
    "subject": (
        (("countryName", "NO"),),
        (("organizationName", "a, b"), ("organizationalUnitName", "c+d")),
        (("commonName", " x "),),
        (("commonName", "#y"),),
    ),
    "subjectAltName": (("IP Address", "1.2.3.4"), ("DNS", "a.example"), ("email", "a@b"), ("DNS", "c")),
}


@pytest.mark.parametrize(
    ("login_from", "name"),
    [
        ("distinguished_name", "CN=\\#y,CN=\\ x\\ ,O=a\\, b+OU=c\\+d,C=NO"),
        ("common_name", " x ,#y"),
        ("san_dns", "a.example"),
        ("san_email", "a@b"),
        ("san_uri", None),
    ],
)
def test_a_certificate_names_a_user(login_from: str, name: str | None) -> None:
    assert login_name(CERTIFICATE, login_from) == name  # type: ignore[arg-type]
    assert login_name(None, login_from) is None  # type: ignore[arg-type]
    assert login_name({}, login_from) is None  # type: ignore[arg-type]
