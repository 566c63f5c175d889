"""python-qpid-proton as it is: subscriptions, streams, transactions, management, reconnecting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from proton import Described, Message, symbol
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container, DurableSubscription, Filter, LinkOption
from proton.utils import BlockingConnection, LinkDetached

from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S
from tests.support.pika_queues import declare_durable, declare_stream


@contextmanager
def connected(amqp_port: int, container: str = "") -> Iterator[BlockingConnection]:
    """A connection of the container of that name."""
    made = Container()
    if container:
        made.container_id = container
    url = f"amqp://guest:guest@127.0.0.1:{amqp_port}"
    connection = BlockingConnection(url, timeout=LIMIT_S, allowed_mechs="PLAIN", container=made)
    try:
        yield connection
    finally:
        with suppress(Exception):
            connection.close()


class Shared(LinkOption):  # type: ignore[misc]
    """Receivers of one name share the subscription."""

    def apply(self, link: Any) -> None:
        link.source.capabilities.put_object(symbol("shared"))


def take(receiver: Any, count: int) -> list[Any]:
    """The bodies of the next messages, which are accepted."""
    bodies = []
    for _ in range(count):
        bodies.append(receiver.receive(timeout=LIMIT_S).body)
        receiver.accept()
    return bodies


def test_a_durable_subscription_keeps_what_comes_meanwhile(amqp_port: int, unique: str) -> None:
    address = f"topic://{unique}"
    with connected(amqp_port, unique) as connection:
        connection.create_receiver(address, name="mine", options=DurableSubscription())
    with connected(amqp_port) as other:
        sender = other.create_sender(address)
        for number in range(5):
            sender.send(Message(body=number))
    with connected(amqp_port, unique) as connection:
        receiver = connection.create_receiver(address, name="mine", options=DurableSubscription())
        assert take(receiver, 5) == [0, 1, 2, 3, 4]
        receiver.close()
        # It ended with its link, and a new one begins without messages.
        sender = connection.create_sender(address)
        sender.send(Message(body=5))
        receiver = connection.create_receiver(address, name="mine", options=DurableSubscription())
        sender.send(Message(body=6))
        assert take(receiver, 1) == [6]
        receiver.close()


def test_receivers_share_a_subscription(amqp_port: int, unique: str) -> None:
    address = f"topic://{unique}"
    with connected(amqp_port, unique) as connection:
        receivers = [
            connection.create_receiver(address, name=f"ours|{i}", options=Shared(), credit=5)
            for i in range(2)
        ]
        alone = connection.create_receiver(address, name="alone", credit=10)
        sender = connection.create_sender(address)
        for number in range(10):
            sender.send(Message(body=number))
        assert take(alone, 10) == list(range(10))
        halves = [take(receiver, 5) for receiver in receivers]
        assert sorted(halves[0] + halves[1]) == list(range(10))


def described(name: str, value: object) -> Filter:
    """A filter of a source."""
    return Filter({symbol(name): Described(symbol(name), value)})


@pytest.mark.parametrize(
    ("filters", "bodies"),
    [
        ((described("rabbitmq:stream-offset-spec", "first"),), list(range(12))),
        (
            (
                Filter(
                    {
                        symbol("offset"): Described(symbol("rabbitmq:stream-offset-spec"), 4),
                        symbol("sql"): Described(symbol("amqp:sql-filter"), "number % 3 = 0"),
                    }
                ),
            ),
            [6, 9],
        ),
    ],
)
def test_a_stream_is_read_from_an_offset_and_through_filters(
    amqp_port: int, unique: str, filters: tuple[Filter, ...], bodies: list[int]
) -> None:
    declare_stream(amqp_port, unique)
    with connected(amqp_port) as connection:
        sender = connection.create_sender(f"/queues/{unique}")
        for number in range(12):
            sender.send(Message(body=number, properties={"number": number}, durable=True))
        receiver = connection.create_receiver(f"/queues/{unique}", options=list(filters), credit=20)
        assert take(receiver, len(bodies)) == bodies


def test_a_queue_is_declared_bound_and_deleted_by_requests(amqp_port: int, unique: str) -> None:
    with connected(amqp_port) as connection:
        answers = connection.create_receiver("/management", name="pair", credit=10)
        requests = connection.create_sender("/management", name="pair")

        def ask(number: int, method: str, path: str, body: object = None) -> str:
            requests.send(Message(id=number, address=path, subject=method, reply_to="$me", body=body))
            answer = answers.receive(timeout=LIMIT_S)  # it is settled
            assert answer.correlation_id == number
            return str(answer.subject)

        assert ask(1, "PUT", f"/queues/{unique}", {"durable": True}) == "201"
        binding = {"source": "amq.topic", "destination_queue": unique, "binding_key": f"{unique}.#"}
        assert ask(2, "POST", "/bindings", {**binding, "arguments": {}}) == "204"
        connection.create_sender(f"/exchanges/amq.topic/{unique}.a").send(Message(body="m"))
        receiver = connection.create_receiver(f"/queues/{unique}")
        assert take(receiver, 1) == ["m"]
        receiver.close()
        assert ask(3, "DELETE", f"/queues/{unique}") == "200"
        assert ask(4, "GET", f"/queues/{unique}") == "404"
        with pytest.raises(LinkDetached, match="amqp:not-found"):
            connection.create_receiver(f"/queues/{unique}")


class Looped(MessagingHandler, TransactionHandler):  # type: ignore[misc]
    """A handler whose loop runs in a thread of its own."""

    def __init__(self, amqp_port: int, queue: str) -> None:
        super().__init__(auto_accept=False)
        self.url = f"amqp://guest:guest@127.0.0.1:{amqp_port}"
        self.queue = f"/queues/{queue}"
        self.bodies: list[Any] = []

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.connection = event.container.connect(self.url, allowed_mechs="PLAIN", reconnect=[0.1] * 600)
        self.sender = event.container.create_sender(self.connection, self.queue)
        self.receiver = event.container.create_receiver(self.connection, self.queue)

    @contextmanager
    def run(self) -> Iterator[None]:
        """Meanwhile; it has to end by itself."""
        runner = threading.Thread(target=Container(self).run, daemon=True)
        runner.start()
        yield
        runner.join(LIMIT_S)
        assert not runner.is_alive()


class Transacted(Looped):
    """Sends and takes in transactions: the first one is rolled back, the second one is not."""

    def on_link_opened(self, event: Any) -> None:
        if event.link == self.receiver:
            self.rounds = 0
            self.declare()

    def declare(self) -> None:
        self.container.declare_transaction(self.connection, handler=self, settle_before_discharge=True)

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.rounds += 1
        if self.rounds == 3:
            self.settle()
            return
        for number in range(3):
            body = f"{self.rounds}-{number}"
            self.transaction.send(self.sender, Message(body=body, durable=True))
        (self.transaction.abort if self.rounds == 1 else self.transaction.commit)()

    def on_transaction_aborted(self, event: Any) -> None:
        assert self.bodies == []
        self.declare()

    def on_transaction_committed(self, event: Any) -> None:
        if self.rounds == 2:
            self.declare()
        else:
            self.connection.close()

    def on_message(self, event: Any) -> None:
        self.bodies.append((event.message.body, event.delivery))
        self.settle()

    def settle(self) -> None:
        """Accept all in the third transaction, when they came and it is there."""
        if len(self.bodies) == 3 and self.rounds == 3:
            for _, delivery in self.bodies:
                self.transaction.accept(delivery)
            self.transaction.commit()


def test_transactions_are_rolled_back_and_committed(amqp_port: int, unique: str) -> None:
    declare_durable(amqp_port, unique)
    handler = Transacted(amqp_port, unique)
    with handler.run():
        pass
    assert [body for body, _ in handler.bodies] == ["2-0", "2-1", "2-2"]


class Reconnecting(Looped):
    """Sends one message whenever its links are there, until it got two."""

    def __init__(self, amqp_port: int, queue: str, came: Callable[[], None]) -> None:
        super().__init__(amqp_port, queue)
        self.came = came
        self.sent = 0

    def on_link_opened(self, event: Any) -> None:
        if event.link.is_sender:
            event.link.send(Message(body=self.sent, durable=True))
            self.sent += 1

    def on_message(self, event: Any) -> None:
        self.bodies.append(event.message.body)
        self.accept(event.delivery)
        self.came()
        if event.message.body == 1:
            self.connection.close()


def test_links_come_back_when_a_killed_gateway_does(tmp_path: Path) -> None:
    with Gateway(tmp_path / "data") as gateway:
        declare_durable(gateway.amqp_port, "q")
        came = threading.Event()
        handler = Reconnecting(gateway.amqp_port, "q", came.set)
        with handler.run():
            assert came.wait(LIMIT_S)
            gateway.kill9()
            gateway.start()
        assert sorted(set(handler.bodies)) == [0, 1]
