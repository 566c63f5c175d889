"""Strangers who come and go leave no cycle of objects: with the collector off, nothing is there to collect.

One table over all protocols and ways to go before a login. Cycles cost memory until the collector finds them,
and it runs rarely: strangers would decide how much that is.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import pytest
from hpack import Encoder
from pamqp import commands

from penstock.protocols.amqp10.codec.frames import HEADER, SASL, SASL_HEADER, encode_frame
from penstock.protocols.amqp10.codec.performatives import (
    Attach,
    Begin,
    Close,
    Open,
    SaslInit,
    Source,
    Target,
)
from penstock.protocols.listening.listener import Listener
from penstock.testing import Gateway
from tests.reference import mqtt_frames as mqtt
from tests.reference import native_frames as native
from tests.support.amqp_client import Closed, Connection
from tests.support.certificates import Authority
from tests.support.limits import LIMIT_S
from tests.support.native_session import PLAIN
from tests.support.websocket_wire import WebSocketWire, request

pytestmark = [pytest.mark.penstock_only("it looks into the gateway's process")]

Port = Callable[[str], int]
LIVES: Final = 3


def reach(port: int, *said: bytes, ends: bool = True, answered: bool = True) -> None:
    """Say these things, each when the one before was answered, and close, or wait until the gateway does."""
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as client:
        for data in said:
            client.sendall(data)
            if answered:
                client.recv(65536)
        if ends:
            return
        try:
            while client.recv(65536):
                pass
        except ConnectionResetError:
            pass


def reset(port: int, *said: bytes) -> None:
    """The same, and the network is gone: the gateway gets a reset."""
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as client:
        for data in said:
            client.sendall(data)
            client.recv(65536)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TLS.check_hostname, TLS.verify_mode = False, ssl.CERT_NONE


def handshaken(port: int, said: bytes = b"") -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as client:
        with TLS.wrap_socket(client) as wrapped:
            wrapped.sendall(said)
            if said:
                wrapped.recv(65536)


def wrong_password(port: int) -> None:
    with pytest.raises(Closed):
        Connection(port, user="nobody", password="wrong")


H2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
GOAWAY = b"\0\0\x08\7\0\0\0\0\0" + bytes(8)


def h2_request(path: str, password: str, *, method: str = "GET", body: bytes = b"") -> bytes:
    """The preface of HTTP/2, settings and a request of the user guest."""
    login = base64.b64encode(f"guest:{password}".encode()).decode()
    names = {":method": method, ":path": path, ":scheme": "http", ":authority": "localhost"}
    head = Encoder().encode({**names, "authorization": f"Basic {login}"}.items())
    data = len(body).to_bytes(3, "big") + b"\0\1\0\0\0\1" + body if body else b""
    return H2 + len(head).to_bytes(3, "big") + (b"\1\4" if body else b"\1\5") + b"\0\0\0\1" + head + data


GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
HELLO = b"PENSTOCK" + native.frame(1, 0, b'{"versions": [1], "client": "test"}')
CONNECT_WRONG = mqtt.connect("wrong", version=5, user="nobody", password=b"wrong")
AMQP = b"AMQP\0\0\x09\1"
AMQP10 = b"AMQP\0\1\0\0"

H2_WRONG: Final = h2_request("/v1/vhosts/%2f/queues", "wrong")
H2_QUEUES: Final = h2_request("/v1/vhosts/%2f/queues", "guest")
H2_TAIL: Final = h2_request("/v1/vhosts/%2f/exchanges/amq.topic/tail", "guest")
H2_PUBLISH: Final = h2_request(
    "/v1/vhosts/%2f/exchanges/amq.topic/messages",
    "guest",
    method="POST",
    body=b'{"messages": [{"key": "k", "value": "x"}]}',
)

WAYS: Final[dict[str, Callable[[Port], object]]] = {
    "nothing said": lambda port: [reach(port(one)) for one in ("amqp", "mqtt", "native", "http")],
    "reset at once": lambda port: [reset(port(one)) for one in ("amqp", "mqtt", "native", "http")],
    "half a first packet": lambda port: [
        reach(port(one), said, answered=False)
        for one, said in (("amqp", b"AMQ"), ("mqtt", b"\x10\x20\0"), ("native", b"PEN"), ("http", b"GET"))
    ],
    "another protocol": lambda port: [
        reach(port(one), b"\x16\3\1\2\0\1\0\1\xfc\3\3" + bytes(500), answered=False)
        for one in ("amqp", "mqtt", "native", "http")
    ],
    "AMQP, header": lambda port: reach(port("amqp"), AMQP),
    "AMQP, header and reset": lambda port: reset(port("amqp"), AMQP),
    "AMQP, wrong password": lambda port: wrong_password(port("amqp")),
    "AMQP 1.0, header": lambda port: reach(port("amqp"), AMQP10),
    "AMQP 1.0, SASL header": lambda port: reach(port("amqp"), SASL_HEADER),
    "MQTT, refused": lambda port: reach(port("mqtt"), CONNECT_WRONG, ends=False),
    "MQTT, malformed": lambda port: reach(port("mqtt"), b"\x11\2\0\0", ends=False, answered=False),
    "WebSocket, half a handshake": lambda port: reach(port("ws"), request()[:50], answered=False),
    "WebSocket, refused": lambda port: reach(port("ws"), request("/nowhere"), ends=False),
    "WebSocket, handshake alone": lambda port: reach(port("ws"), request()),
    "native, hello": lambda port: reach(port("native"), HELLO),
    "native, refused": lambda port: reach(
        port("native"), HELLO, native.frame(3, 0, b'{"user": "nobody", "password": "x"}'), ends=False
    ),
    "native, no version": lambda port: reach(
        port("native"), b"PENSTOCK" + native.frame(1, 0, b'{"versions": [99]}'), ends=False
    ),
    "native, no JSON": lambda port: reach(port("native"), b"PENSTOCK" + native.frame(1, 0, b"{"), ends=False),
    "HTTP, a request": lambda port: reach(port("http"), GET),
    "HTTP, malformed": lambda port: reach(port("http"), b"\x01\x02 / HTTP/1.1\r\n\r\n", ends=False),
    "HTTP, a socket refused": lambda port: reach(port("http"), request("/v1/nothing")),
    "HTTP/2, settings": lambda port: reach(port("http"), H2),
    "HTTP/2, goaway": lambda port: reach(port("http"), H2 + GOAWAY),
    "HTTP/2, malformed": lambda port: reach(port("http"), H2 + b"\0\0\1\0\0\0\0\0\0x", ends=False),
    "HTTP/2, wrong password": lambda port: reach(port("http"), H2_WRONG),
    "HTTP/2, wrong password, reset": lambda port: reset(port("http"), H2_WRONG),
    "TLS, nothing said": lambda port: [reach(port(one)) for one in ("amqps", "mqtts", "natives")],
    "TLS, no TLS": lambda port: [
        reach(port(one), b"GET / HTTP/1.0\r\n\r\n", ends=False) for one in ("amqps", "mqtts", "natives")
    ],
    "TLS, half a handshake": lambda port: [
        reach(port(one), b"\x16\3\1\2\0\1\0\1\xfc\3\3", answered=False) for one in ("amqps", "mqtts")
    ],
    "TLS, handshake alone": lambda port: [handshaken(port(one)) for one in ("amqps", "mqtts", "natives")],
    "TLS, refused": lambda port: handshaken(port("mqtts"), CONNECT_WRONG),
}

PROXIED: Final[dict[str, Callable[[Port], object]]] = {
    "PROXY, none": lambda port: reach(port("mqtt"), b"\x10\x20\0\4MQTT", ends=False, answered=False),
    "PROXY, half": lambda port: reach(port("amqp"), b"PROXY TCP4 ", answered=False),
    "PROXY, wrong": lambda port: reach(port("mqtt"), b"PROXY nonsense\r\n", ends=False, answered=False),
    "PROXY, gone": lambda port: reset(port("amqp")),
    "PROXY, and a client": lambda port: reach(
        port("amqp"), b"PROXY TCP4 192.0.2.1 192.0.2.2 4000 5672\r\n" + AMQP
    ),
}


GUEST: Final = b"Authorization: Basic Z3Vlc3Q6Z3Vlc3Q="


def mqtt_lives(
    port: int,
    *,
    version: int = 4,
    clean: bool = True,
    will: bool = False,
    filters: tuple[tuple[str, int], ...] = (),
    publishes: int = 0,
    retain: bool = False,
    ends: str = "disconnect",
    wrap: Callable[[socket.socket], socket.socket] | None = None,
) -> None:
    """A client of MQTT logs in, subscribes, gets as many messages as it publishes, and leaves."""
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as plain:
        client = wrap(plain) if wrap is not None else plain

        def ask(packet: bytes, kinds: bytes) -> None:
            client.sendall(packet)
            waited = list(kinds)
            while waited:
                answer = b""
                while len(answer) < 2 or len(answer) < 2 + answer[1]:
                    more = client.recv(2 - len(answer) if len(answer) < 2 else 2 + answer[1] - len(answer))
                    assert more, "the gateway closed"
                    answer += more
                if answer[0] >> 4 in waited:
                    waited.remove(answer[0] >> 4)

        left = ("left", b"x", 1, False) if will else None
        ask(
            mqtt.connect("life", version=version, clean=clean, user="guest", password=b"guest", will=left),
            b"\2",
        )
        props = b"" if version == 5 else None
        if filters:
            ask(mqtt.subscribe(1, *filters, version=version), b"\x09")
        for i in range(publishes):
            kinds = b"\4" + b"\3" * bool(filters)
            ask(mqtt.publish("t", b"x", qos=1, packet_id=i + 2, retain=retain, props=props), kinds)
        if ends == "disconnect":
            client.sendall(mqtt.disconnect())
            while client.recv(65536):  # what was retained
                pass
        elif ends == "reset":
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        elif ends == "taken over":
            with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as other:
                other.sendall(
                    mqtt.connect("life", version=version, clean=True, user="guest", password=b"guest")
                )
                assert client.recv(65536) is not None
                other.recv(65536)
        elif ends == "malformed":
            client.sendall(b"\0\0")
            client.recv(65536)
        client.close()


def over_websocket(port: int, *packets: bytes) -> None:
    client = WebSocketWire(port, 4)
    for packet in packets:
        client.send(packet)
        client.receive()
    client.close()


def amqp_lives(port: int, *, ends: str = "close", work: Callable[[Connection], None] | None = None) -> None:
    """A client of AMQP 0-9-1 logs in, works on a channel, and leaves."""
    client = Connection(port)
    channel = client.channel()
    if work is not None:
        work(client)
    if ends == "close":
        client.call(channel, commands.Channel.Close(200, "", 0, 0))
        client.call(0, commands.Connection.Close(200, "", 0, 0))
    elif ends == "reset":
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    elif ends == "error":
        client.send(channel, commands.Basic.Ack(99, False))
        with pytest.raises(Closed):
            client.call(channel, commands.Basic.Qos(0, 0, False))
    client.socket.close()


def amqp_work(client: Connection) -> None:
    """An exclusive queue, a confirmed publish, a consumer, a get, an acknowledgement that is not sent."""
    client.call(1, commands.Queue.Declare(queue="life", exclusive=True))
    client.call(1, commands.Confirm.Select())
    client.call(1, commands.Queue.Bind(queue="life", exchange="amq.topic", routing_key="life.#"))
    for _ in range(2):
        client.publish(1, "", "life")
        client.wait_for(commands.Basic.Ack)
    client.call(1, commands.Basic.Get(queue="life"))
    client.call(1, commands.Basic.Consume(queue="life", consumer_tag="c"))
    client.message()


def amqp_transaction(client: Connection) -> None:
    client.call(1, commands.Queue.Declare(queue="life", exclusive=True))
    client.call(1, commands.Tx.Select())
    client.publish(1, "", "life")
    client.call(1, commands.Tx.Commit())
    client.publish(1, "", "life")


AMQP10_LOGIN: Final = (
    SASL_HEADER + encode_frame(0, SaslInit("PLAIN", b"\0guest\0guest"), kind=SASL),
    HEADER + encode_frame(0, Open("peer")) + encode_frame(0, Begin(None, 0, 1000, 1000)),
)
AMQP10_LINKS: Final = encode_frame(
    0,
    Attach(
        "out", 0, False, source=Source(), target=Target("/exchanges/amq.topic/k"), initial_delivery_count=0
    ),
) + encode_frame(0, Attach("in", 1, True, source=Source("/exchanges/amq.topic/k"), target=Target()))

NATIVE_LOGIN = native.frame(3, 0, b'{"user": "guest", "password": "guest"}')


def native_asks(**fields: object) -> bytes:
    return native.frame(5, 1, json.dumps(fields).encode())


def http_says(request: bytes, *headers: bytes, body: bytes = b"") -> bytes:
    lines = [request + b" HTTP/1.1", b"Host: localhost", GUEST, *headers]
    if body:
        lines += [b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


T = (("t", 1),)
LOGGED_IN: Final[dict[str, Callable[[Port], object]]] = {
    "MQTT": lambda port: mqtt_lives(port("mqtt")),
    "MQTT, lost": lambda port: mqtt_lives(port("mqtt"), ends="lost"),
    "MQTT, reset": lambda port: mqtt_lives(port("mqtt"), ends="reset"),
    "MQTT, malformed": lambda port: mqtt_lives(port("mqtt"), version=5, ends="malformed"),
    "MQTT, publishes": lambda port: mqtt_lives(port("mqtt"), publishes=3),
    "MQTT, subscribes": lambda port: mqtt_lives(port("mqtt"), filters=T),
    "MQTT, both": lambda port: mqtt_lives(port("mqtt"), filters=T, publishes=3),
    "MQTT 5, both, lost": lambda port: mqtt_lives(
        port("mqtt"), version=5, filters=T, publishes=3, ends="lost"
    ),
    "MQTT, shared": lambda port: mqtt_lives(
        port("mqtt"), version=5, filters=(("$share/g/t", 1),), publishes=2
    ),
    "MQTT, retained": lambda port: [
        mqtt_lives(port("mqtt"), publishes=1, retain=True),
        mqtt_lives(port("mqtt"), filters=(("#", 1),)),
        mqtt_lives(port("mqtt"), filters=(("$SYS/#", 0),)),
    ],
    "MQTT, will": lambda port: mqtt_lives(port("mqtt"), will=True, ends="lost"),
    "MQTT, persistent": lambda port: mqtt_lives(port("mqtt"), clean=False, filters=T, publishes=2),
    "MQTT, persistent and taken over": lambda port: mqtt_lives(
        port("mqtt"), clean=False, filters=T, publishes=2, ends="taken over"
    ),
    "MQTT, taken over": lambda port: mqtt_lives(port("mqtt"), version=5, ends="taken over"),
    "MQTT over TLS": lambda port: mqtt_lives(port("mqtts"), filters=T, publishes=2, wrap=TLS.wrap_socket),
    "MQTT over WebSocket": lambda port: over_websocket(
        port("ws"), mqtt.connect("ws", user="guest", password=b"guest"), mqtt.subscribe(1, ("t", 0))
    ),
    "AMQP": lambda port: amqp_lives(port("amqp")),
    "AMQP, lost": lambda port: amqp_lives(port("amqp"), ends="lost"),
    "AMQP, reset": lambda port: amqp_lives(port("amqp"), ends="reset"),
    "AMQP, channel error": lambda port: amqp_lives(port("amqp"), ends="error"),
    "AMQP, works": lambda port: amqp_lives(port("amqp"), work=amqp_work),
    "AMQP, works, lost": lambda port: amqp_lives(port("amqp"), work=amqp_work, ends="lost"),
    "AMQP, transaction": lambda port: amqp_lives(port("amqp"), work=amqp_transaction),
    "AMQP, transaction, lost": lambda port: amqp_lives(port("amqp"), work=amqp_transaction, ends="lost"),
    "native": lambda port: reach(port("native"), HELLO, NATIVE_LOGIN),
    "native, reset": lambda port: reset(port("native"), HELLO, NATIVE_LOGIN),
    "native, publishes": lambda port: reach(
        port("native"),
        HELLO,
        NATIVE_LOGIN,
        native_asks(do="open_producer", handle=1, topic="t", create=True),
        native.produce(1, 0, 2, [(PLAIN, b"x")]),
    ),
    "native, consumes": lambda port: reach(
        port("native"),
        HELLO,
        NATIVE_LOGIN,
        native_asks(
            do="subscribe", handle=1, topic="t", subscription="s", kind="shared", consumer="c", create=True
        ),
    ),
    "native, reads": lambda port: reset(
        port("native"),
        HELLO,
        NATIVE_LOGIN,
        native_asks(do="read", handle=1, topic="t", start="earliest"),
    ),
    "AMQP 1.0": lambda port: reach(port("amqp"), *AMQP10_LOGIN),
    "AMQP 1.0, ended": lambda port: reach(port("amqp"), *AMQP10_LOGIN, encode_frame(0, Close()), ends=False),
    "AMQP 1.0, links": lambda port: reach(port("amqp"), *AMQP10_LOGIN, AMQP10_LINKS),
    "AMQP 1.0, links, reset": lambda port: reset(port("amqp"), *AMQP10_LOGIN, AMQP10_LINKS),
    "HTTP": lambda port: reach(port("http"), http_says(b"GET /v1/vhosts/%2f/queues")),
    "HTTP, publishes": lambda port: reach(
        port("http"),
        http_says(
            b"POST /v1/vhosts/%2f/exchanges/amq.topic/messages",
            body=b'{"messages": [{"key": "k", "value": "x"}]}',
        ),
    ),
    "HTTP/2": lambda port: reach(port("http"), H2_QUEUES),
    "HTTP/2, goaway": lambda port: reach(port("http"), H2_QUEUES, GOAWAY, ends=False),
    "HTTP/2, publishes": lambda port: reach(port("http"), H2_PUBLISH),
    "HTTP/2, tail": lambda port: reach(port("http"), H2_TAIL),
    "HTTP/2, tail, reset": lambda port: reset(port("http"), H2_TAIL),
    "HTTP, tail": lambda port: reach(port("http"), http_says(b"GET /v1/vhosts/%2f/exchanges/amq.topic/tail")),
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    pair = Authority(tmp_path_factory.mktemp("ca")).server()
    listen = {f"{one}.listen": "127.0.0.1:0" for one in ("http", "native")}
    settings = {
        **listen,
        "mqtt.ws_listen": "127.0.0.1:0",
        **{f"{one}.tls_listen": "127.0.0.1:0" for one in ("amqp", "mqtt", "native")},
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
    }
    with Gateway(settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def behind_proxy() -> Iterator[Gateway]:
    with Gateway(settings={"server.proxy_networks": "127.0.0.0/8"}) as running:
        yield running


def leftovers(gateway: Gateway, ways: Mapping[str, Callable[[Port], object]]) -> dict[str, Counter[str]]:
    """The objects in cycles that each way left, by type; ways that left none are not named."""
    loop = gateway._loop
    assert loop is not None
    listeners = [one for one in gc.get_objects() if type(one) is Listener and one._loop is loop]

    async def all_gone() -> None:
        """Every connection is lost, and the loop has had its turns for what follows."""
        async with asyncio.timeout(LIMIT_S):
            while any(one.connections or one._announced for one in listeners):
                await asyncio.sleep(0.01)
        for _ in range(5):
            await asyncio.sleep(0.01)

    def go(way: Callable[[Port], object], lives: int) -> None:
        for _ in range(lives):
            way(gateway.listener)
        asyncio.run_coroutine_threadsafe(all_gone(), loop).result()

    for way in ways.values():
        go(way, 1)
    found = {}
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for name, way in ways.items():
            go(way, LIVES)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            gc.set_debug(0)
            if len(gc.garbage) >= LIVES:
                found[name] = Counter(type(one).__qualname__ for one in gc.garbage)
            gc.garbage.clear()
            gc.collect()
    finally:
        gc.set_debug(0)
        gc.enable()
        gc.unfreeze()
    return found


def test_a_stranger_leaves_nothing_to_collect(gateway: Gateway) -> None:
    assert leftovers(gateway, WAYS) == {}


def test_a_client_leaves_nothing_to_collect(gateway: Gateway) -> None:
    assert leftovers(gateway, LOGGED_IN) == {}


def test_a_stranger_behind_a_proxy_leaves_nothing_to_collect(behind_proxy: Gateway) -> None:
    assert leftovers(behind_proxy, PROXIED) == {}


def test_a_cycle_of_objects_is_found(gateway: Gateway) -> None:
    """The measure itself: a way that leaves a cycle in each life."""

    def cyclic(port: Port) -> None:
        holds: list[object] = []
        holds.append(holds)

    assert leftovers(gateway, {"a cycle": cyclic}) == {"a cycle": Counter(list=LIVES)}
