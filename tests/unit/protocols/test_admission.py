"""Admission of connections: counts and rates per address, trusted proxies, PROXY headers."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.listening.proxy import ProxyError, Source, parse_header, read_header
from penstock.protocols.net.admitting.admission import Admission

V2 = b"\r\n\r\n\0\r\nQUIT\n"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


# Counts and rates


def test_an_address_has_so_many_connections_at_once() -> None:
    admission = Admission(max_per_address=2)
    for host in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
        assert admission.enter(host) is None
    for _ in range(2):
        assert admission.enter("192.0.2.1") == "server.max_connections_per_address"
        assert admission.enter("::ffff:192.0.2.1") == "server.max_connections_per_address"
    admission.leave("192.0.2.1")
    assert admission.enter("::ffff:192.0.2.1") is None


def test_an_ipv6_peer_counts_as_its_network() -> None:
    admission = Admission(max_per_address=1)
    assert admission.enter("2001:db8::1") is None
    assert admission.enter("2001:db8::ffff:2%eth0") == "server.max_connections_per_address"
    assert admission.enter("2001:db8:0:1::1") is None


def test_an_address_may_come_so_often() -> None:
    clock = Clock()
    admission = Admission(rate_per_address=10, clock=clock)
    assert [admission.enter("192.0.2.1") for _ in range(20)] == [None] * 20
    assert admission.enter("192.0.2.1") == "server.accept_rate_per_address"
    assert admission.enter("192.0.2.2") is None
    clock.now = 0.3
    assert [admission.enter("192.0.2.1") is None for _ in range(4)] == [True] * 3 + [False]
    clock.now = 1000.0
    assert sum(admission.enter("192.0.2.1") is None for _ in range(100)) == 20


def test_loopback_is_not_limited_unless_a_proxy_says_so() -> None:
    admission = Admission(max_per_address=1, rate_per_address=1)
    assert all(admission.enter(host) is None for host in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] * 10)
    assert [admission.enter("127.0.0.1", proxied=True) is None for _ in range(2)] == [True, False]


def test_addresses_that_are_gone_are_forgotten() -> None:
    clock = Clock()
    admission = Admission(rate_per_address=10, max_per_address=5, clock=clock)
    for i in range(20_000):
        clock.now += 0.001
        host = str(ipaddress.ip_address(0x0A000000 + i))
        assert admission.enter(host) is None
        if i % 100:
            admission.leave(host)
    assert admission.remembered < 10_000
    for _ in range(4):
        assert admission.enter("10.0.0.0") is None, "one that is still connected is remembered"
    assert admission.enter("10.0.0.0") == "server.max_connections_per_address"


def test_a_proxy_is_known_by_its_network() -> None:
    admission = Admission(proxy_networks=("10.1.0.0/16", "2001:db8::7"))
    for host in ("10.1.2.3", "::ffff:10.1.2.3", "2001:db8::7"):
        assert admission.is_proxy(host)
    for host in ("10.2.0.1", "2001:db8::8", "127.0.0.1", "", "nonsense"):
        assert not admission.is_proxy(host)
    assert not Admission().is_proxy("10.1.2.3")


# PROXY headers

V4 = b"\xc0\0\2\7\xc6\x33\x64\1" + (51000).to_bytes(2, "big") + (8883).to_bytes(2, "big")
V6 = ipaddress.ip_address("2001:db8::5").packed + bytes(16) + (51000).to_bytes(2, "big") + bytes(2)


def v2(command: int, family: int, rest: bytes) -> bytes:
    return V2 + bytes([command, family]) + len(rest).to_bytes(2, "big") + rest


GOOD = {
    "v1 over IPv4": (b"PROXY TCP4 192.0.2.7 198.51.100.1 51000 8883\r\n", Source("192.0.2.7", 51000)),
    "v1 over IPv6": (b"PROXY TCP6 2001:DB8::5 2001:db8::1 51000 1\r\n", Source("2001:db8::5", 51000)),
    "v1 unknown": (b"PROXY UNKNOWN\r\n", Source("", 0)),
    "v1 unknown with more": (b"PROXY UNKNOWN ff:ff 1 2 3\r\n", Source("", 0)),
    "v1 as long as it may be": (
        b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535".ljust(105, b" ") + b"\r\n",
        Source("", 0),
    ),
    "v2 over IPv4": (v2(0x21, 0x11, V4), Source("192.0.2.7", 51000)),
    "v2 with extensions": (v2(0x21, 0x11, V4 + b"\x20\0\x05hello"), Source("192.0.2.7", 51000)),
    "v2 over IPv6": (v2(0x21, 0x21, V6), Source("2001:db8::5", 51000)),
    "v2 over a Unix socket": (v2(0x21, 0x31, bytes(216)), Source("", 0)),
    "v2 of nobody": (v2(0x21, 0, b""), Source("", 0)),
    "v2 of the proxy itself": (v2(0x20, 0, b""), Source("", 0, is_proxy=True)),
}


@pytest.mark.parametrize("kind", GOOD)
def test_a_header_is_understood_whole_and_not_before(kind: str) -> None:
    header, source = GOOD[kind]
    assert parse_header(header + b"more") == (source, len(header))
    for size in range(len(header)):
        assert parse_header(header[:size]) is None


BAD = [
    b"\x10\x0c\0\4MQTT",
    b"AMQP\0\0\x09\x01",
    b"GET / HTTP/1.1\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 51000\r\n",
    b"PROXY TCP4 2001:db8::1 198.51.100.1 51000 1\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 65536 1\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 -1 1\r\n",
    b"PROXY TCP4 192.0.2.7.8 198.51.100.1 1 1\r\n",
    b"PROXY TCP5 192.0.2.7 198.51.100.1 1 1\r\n",
    b"PROXY \r\n",
    b"PROXY UNKNOWN".ljust(108, b"x"),
    V2 + b"\x11\x11\0\x0c" + V4,
    V2 + b"\x22\x11\0\x0c" + V4,
    v2(0x21, 0x11, V4[:-1]),
    v2(0x21, 0x21, V4),
    V2 + b"\x21\x11\xff\xff",
]


@pytest.mark.parametrize("data", BAD)
def test_an_invalid_header_is_refused(data: bytes) -> None:
    with pytest.raises(ProxyError):
        parse_header(data)


@given(st.one_of(st.binary(max_size=60), st.binary(max_size=300).map(lambda b: V2 + b)))
def test_any_bytes_are_a_header_or_none_or_too_few(data: bytes) -> None:
    try:
        found = parse_header(data)
    except ProxyError:
        return
    assert found is None or 0 < found[1] <= len(data)


@pytest.mark.parametrize("kind", ["v1 over IPv4", "v2 with extensions"])
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_only_the_header_is_taken_off_the_socket(kind: str, step: int) -> None:
    header, source = GOOD[kind]

    async def check() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            reading = asyncio.create_task(read_header(ours, 5))
            data = header + b"\x16\x03\x01"
            for start in range(0, len(data), step):
                theirs.send(data[start : start + step])
                for _ in range(3):
                    await asyncio.sleep(0)
            assert await reading == source
            assert ours.recv(100).endswith(b"\x16\x03\x01"[-step:])

    uvloop.run(check())


def test_a_header_that_does_not_come_is_not_waited_for_long() -> None:
    async def check() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.send(b"PROXY TCP4")
            with pytest.raises(TimeoutError):
                await read_header(ours, 0.02)
            theirs.close()
            with pytest.raises(ProxyError, match="closed before"):
                await read_header(ours, 5)

    uvloop.run(check())
