"""The client without asyncio, against a gateway in this process."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from types import FunctionType

import pytest

import penstock.sync
from penstock.sdk.errors import BufferFull, ClientError, Closed, ConnectionLost
from penstock.testing import Gateway

WAIT_S = 60.0


@pytest.fixture
def client(gateway: Gateway) -> Iterator[penstock.sync.Client]:
    with penstock.sync.connect(gateway.url) as client:
        yield client


def take(consumer: penstock.sync.Consumer, n: int) -> list[bytes]:
    """The bodies of the next n messages."""
    found: list[bytes] = []
    while len(found) < n:
        some = consumer.receive_many(n - len(found), WAIT_S)
        assert some, f"{len(found)} of {n} messages came"
        found += [message.body for message in some]
    return found


def test_it_produces_consumes_and_settles(client: penstock.sync.Client) -> None:
    options = {"start": "earliest", "nack_backoff_s": (0.0, 0.0)}
    with client.producer("t") as producer, client.subscribe("t", "s", **options) as consumer:
        first = producer.send("one", key="k", headers={"a": 1})
        ids = producer.send_many([b"two", b"three"])
        waiting = [producer.send_nowait(b"%d" % i) for i in range(100)]
        producer.flush()
        found = []
        for message in consumer:
            with consumer.process(message):
                found.append(message)
            if len(found) == 3:
                break
        assert [message.id for message in found] == [first, *ids]
        assert (found[0].key, found[0].headers["a"]) == ("k", 1)
        assert take(consumer, 100) == [b"%d" % i for i in range(100)]
        assert waiting[99].result(WAIT_S) > waiting[0].result(WAIT_S) > ids[1]
        with pytest.raises(KeyError), consumer.process(found[0]):
            raise KeyError
        consumer.ack([], durable=True)
    described = client.admin.describe("t")
    assert (described["messages"], described["subscriptions"]["s"]["acknowledged"]) == (103, 3)


def test_a_message_whose_processing_fails_comes_again(client: penstock.sync.Client) -> None:
    options = {"start": "earliest", "nack_backoff_s": (0.0, 0.0)}
    with client.producer("t") as producer, client.subscribe("t", "s", **options) as consumer:
        producer.send("x")
        (message,) = consumer.receive_many(1, WAIT_S)
        with pytest.raises(KeyError), consumer.process(message):
            raise KeyError
        (again,) = consumer.receive_many(1, WAIT_S)
        assert (again.id, again.redelivered) == (message.id, True)


def test_a_full_buffer_is_told_at_once(client: penstock.sync.Client) -> None:
    with client.producer("t", buffer_bytes=1000, linger_ms=60_000) as producer:
        kept = producer.send_nowait(bytes(900))
        with pytest.raises(BufferFull):
            producer.send_nowait(bytes(900))
        producer.flush()
        assert kept.result(WAIT_S).position


def test_a_transaction_happens_whole_or_not(client: penstock.sync.Client) -> None:
    with (
        client.producer("in") as source,
        client.producer("out") as out,
        client.subscribe("in", "s", start="earliest") as consumer,
    ):
        source.send("1")
        (message,) = consumer.receive_many(1, WAIT_S)
        with pytest.raises(KeyError), out.transaction() as tx:
            tx.send("never")
            tx.ack(message)
            raise KeyError
        with pytest.raises(TypeError, match="to is a producer that is open, not str"):
            out.transaction().send("x", to="source")  # type: ignore[arg-type]
        with out.transaction() as tx:
            tx.send("a")
            tx.send("b", to=source)
            tx.ack([message])
        with client.reader("out", start="earliest") as reader:
            assert take(reader, 1) == [b"a"]
        assert take(consumer, 1) == [b"b"]
        assert client.admin.describe("out")["messages"] == 1


def test_threads_share_a_client(client: penstock.sync.Client) -> None:
    with client.producer("t") as producer:
        threads = [threading.Thread(target=lambda: [producer.send("x") for _ in range(20)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert client.admin.describe("t")["messages"] == 160


def test_closing_wakes_who_waits_and_ends_the_thread(gateway: Gateway) -> None:
    client = penstock.sync.connect(gateway.url)
    client.admin.create_topic("t")
    consumer = client.subscribe("t", "s").open()
    ended = []
    waiting = threading.Thread(target=lambda: ended.append(list(consumer)))
    waiting.start()
    consumer.close()
    waiting.join()
    assert ended == [[]]
    client.close()
    client.close()
    assert not [one for one in threading.enumerate() if one.name == "penstock-client"]
    with pytest.raises(Closed):
        client.admin.topics()


def test_nobody_there_leaves_no_thread() -> None:
    with pytest.raises(ConnectionLost):
        penstock.sync.connect("penstock://127.0.0.1:1")
    with pytest.raises(ClientError):
        penstock.sync.connect("http://127.0.0.1")
    assert not [one for one in threading.enumerate() if one.name == "penstock-client"]


def test_rows_of_an_outbox_are_sent_once(client: penstock.sync.Client) -> None:
    rows = [(number, b"%d" % number) for number in range(1, 51)]
    for _ in range(2):  # the second time all of them are there
        with client.producer("t", name="shop", numbered=True) as producer:
            assert list(penstock.sync.sent(producer, rows, ahead=10)) == list(range(1, 51))
    with client.producer("t", name="shop", numbered=True) as producer:
        some = penstock.sync.sent(producer, [(60, b"60"), (61, b"61")], ahead=1)
        assert next(some) == 60
        some.close()
    assert client.admin.describe("t")["messages"] in (51, 52), "the last one was under way"


def test_where_an_answer_goes_is_said(client: penstock.sync.Client) -> None:
    with client.producer("t") as producer, client.subscribe("t", "s", start="earliest") as consumer:
        producer.send("ask", reply_to="answers", correlation_id="7")
        producer.send("tell")
        asked, told = consumer.receive(WAIT_S), consumer.receive(WAIT_S)
        assert asked is not None and told is not None
        assert (asked.reply_to, asked.correlation_id) == ("answers", "7")
        assert (told.reply_to, told.correlation_id) == (None, None)


def test_all_names_can_be_completed() -> None:
    """In a shell: before anything of it was asked for, too."""
    code = "import penstock; print(*dir(penstock))"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert set(penstock.__all__) <= set(shown.stdout.split())
    ours = {
        name
        for name, value in vars(penstock.sync).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == "penstock.sync"
        if isinstance(value, type | FunctionType)
    }
    assert ours <= set(penstock.sync.__all__), "classes and functions of the module"
