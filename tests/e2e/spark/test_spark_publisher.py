"""The client with which Spark publishes: what was sent is there, and each failure is said in one line."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa
import pytest

from penstock.spark.errors import SparkError
from penstock.spark.publishing import amqp
from penstock.spark.publishing.messages import Numbers
from penstock.spark.retry import RetryWindow
from penstock.spark.sink import WriteOptions, publish
from tests.support.brokers import Gateway
from tests.support.certificates import Authority


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Gateway]:
    server = authority.server()
    settings = {
        "amqp.tls_listen": "127.0.0.1:0",
        "tls.cert_file": str(server.cert),
        "tls.key_file": str(server.key),
    }
    with Gateway(tmp_path_factory.mktemp("gateway"), settings=settings) as running:
        yield running


def url(gateway: Gateway) -> str:
    return f"amqp://guest:guest@127.0.0.1:{gateway.amqp_port}/%2F"


def batch(count: int, **columns: Any) -> pa.RecordBatch:
    given = {"payload": [f"m{index}" for index in range(count)], **columns}
    return pa.RecordBatch.from_pydict(given)


def send(target: str, batches: list[pa.RecordBatch], producer: str = "job/0", **options: str) -> int:
    chosen = WriteOptions.parse({"url": target, "exchange": "", "routingKey": "taken", **options})
    return publish(chosen, iter(batches), Numbers(producer)).messages


@pytest.fixture
def taken(gateway: Gateway) -> Iterator[Any]:
    """A queue, and what is in it."""
    connection = pika.BlockingConnection(pika.URLParameters(url(gateway)))
    channel = connection.channel()
    channel.queue_declare("taken", durable=True)

    def bodies() -> list[bytes]:
        found: list[bytes] = []
        while (body := channel.basic_get("taken", auto_ack=True)[2]) is not None:
            found.append(body)
        return found

    yield bodies
    channel.queue_delete("taken")
    connection.close()


def test_messages_of_several_batches_arrive_in_order_and_once(gateway: Gateway, taken: Any) -> None:
    batches = [batch(1200), batch(0), batch(3, payload=["x" * 300_000, "", None])]
    assert send(url(gateway), batches) == 1203
    bodies = taken()
    assert bodies == [f"m{index}".encode() for index in range(1200)] + [b"x" * 300_000, b"", b""]
    assert send(url(gateway), batches) == 1203
    assert taken() == []
    assert send(url(gateway), batches, "job/1") == 1203
    assert len(taken()) == 1203


def test_tls_with_a_certificate_authority_of_its_own(
    gateway: Gateway, authority: Authority, taken: Any
) -> None:
    port = gateway.ports["amqps"]
    secure = f"amqps://guest:guest@127.0.0.1:{port}/%2F"
    assert send(f"{secure}?cacertfile={authority.file}", [batch(700)], "tls") == 700
    assert len(taken()) == 700
    with pytest.raises(SparkError, match=r"is refused: .*certificate verify failed.*cacertfile=PATH"):
        send(secure, [batch(1)])


def test_a_rate_is_kept_to(gateway: Gateway, taken: Any) -> None:
    began = time.monotonic()
    assert send(url(gateway), [batch(60)], "slow", rate="40") == 60
    assert time.monotonic() - began >= 1.4
    assert len(taken()) == 60


def test_a_refusal_is_reported_with_the_text_of_the_gateway(gateway: Gateway) -> None:
    good = url(gateway)
    with pytest.raises(SparkError, match="refused it: 403 ACCESS_REFUSED"):
        send(good.replace("guest:guest", "guest:wrong"), [batch(1)])
    with pytest.raises(SparkError, match="refused it: 530 NOT_ALLOWED"):
        send(good.replace("%2F", "nowhere"), [batch(1)])
    with pytest.raises(SparkError, match="refused it: 404 NOT_FOUND - no exchange 'none'"):
        send(good, [batch(5)], exchange="none")
    # With transactions under way behind the refused one.
    with pytest.raises(SparkError, match="refused it: 404 NOT_FOUND"):
        send(good, [batch(20_000)], exchange="none")


def test_a_peer_that_is_no_gateway_is_reported(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp, "RetryWindow", lambda: RetryWindow(0))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer(said: bytes) -> None:
            peer, _ = server.accept()
            with contextlib.suppress(OSError):
                peer.recv(8)
                peer.sendall(said)
            peer.close()

        foreign = "does not speak AMQP 0-9-1; give the address of the gateway's amqp.listen"
        for said, message in (
            (b"AMQP\0\1\0\0", foreign),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", foreign),
            (b"\1\0\0\0\0\0\4\0\x63\0\x63\xce", foreign),
            (b"", "ended the connection"),
        ):
            thread = threading.Thread(target=answer, args=(said,))
            thread.start()
            with pytest.raises(SparkError, match=message):
                send(f"amqp://127.0.0.1:{port}", [batch(1)])
            thread.join()
    with pytest.raises(SparkError, match=rf"publishing to 127.0.0.1:{port} failed: .*refused; see that"):
        send(f"amqp://127.0.0.1:{port}", [batch(1)])
    with pytest.raises(SparkError, match=r"the files of TLS cannot be used: .*name PEM files"):
        send(f"amqps://127.0.0.1:{port}?cacertfile=/nowhere.pem", [batch(1)])


class Returns(RetryWindow):
    """Has a gateway that is gone start at the third look."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__()
        self.gateway = gateway
        self.looks: list[str] = []

    def wait(self, error: Exception) -> None:
        self.looks.append(str(error))
        if len(self.looks) == 3:
            self.gateway.start()
        super().wait(error)


@pytest.mark.parametrize("way", ["killed", "stopped"])
def test_a_gateway_that_is_started_again_gets_what_is_missing_and_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    # A publisher between two batches gets no notice that the gateway stops.
    with Gateway(tmp_path / "gateway", settings={"server.drain_timeout_s": "0"}) as gateway:
        connection = pika.BlockingConnection(pika.URLParameters(url(gateway)))
        connection.channel().queue_declare("taken", durable=True)
        connection.close()
        losses: list[Returns] = []

        def window() -> Returns:
            losses.append(Returns(gateway))
            return losses[-1]

        monkeypatch.setattr(amqp, "RetryWindow", window)

        def batches() -> Iterator[pa.RecordBatch]:
            yield batch(1_500)
            if way == "killed":
                gateway.kill9()
            else:
                gateway.terminate()
            yield batch(1_500)

        options = WriteOptions.parse({"url": url(gateway), "exchange": "", "routingKey": "taken"})
        assert publish(options, batches(), Numbers("job/0")).messages == 3_000
        (looks,) = [one.looks for one in losses if one.looks]
        assert "refused" in looks[-1], looks
        connection = pika.BlockingConnection(pika.URLParameters(url(gateway)))
        channel = connection.channel()
        bodies = [channel.basic_get("taken", auto_ack=True)[2] for _ in range(3_000)]
        assert bodies == 2 * [f"m{index}".encode() for index in range(1_500)]
        assert channel.basic_get("taken", auto_ack=True)[0] is None
        connection.close()
