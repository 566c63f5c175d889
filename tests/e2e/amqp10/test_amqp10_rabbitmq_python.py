"""RabbitMQ's own Python client for AMQP 1.0, as it is: it declares and binds through /management."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from proton import Endpoint
from proton import Message as ProtonMessage
from proton.utils import BlockingConnection, LinkDetached
from rabbitmq_amqp_python_client import (
    AddressHelper,
    AMQPMessagingHandler,
    ClassicQueueSpecification,
    Connection,
    ConnectionClosed,
    ConsumerOptions,
    ConsumerSettleStrategy,
    Environment,
    ExchangeSpecification,
    ExchangeToExchangeBindingSpecification,
    ExchangeToQueueBindingSpecification,
    ExchangeType,
    Management,
    Message,
    OffsetSpecification,
    QueueType,
    QuorumQueueSpecification,
    RecoveryConfiguration,
    StreamConsumerOptions,
    StreamFilterOptions,
    StreamSpecification,
    ValidationCodeException,
)
from rabbitmq_amqp_python_client.qpid.proton import Delivery
from rabbitmq_amqp_python_client.qpid.proton.utils import SendException

from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S


@pytest.fixture
def environment(amqp_port: int) -> Iterator[Environment]:
    environment = Environment(uri=f"amqp://guest:guest@127.0.0.1:{amqp_port}/")
    yield environment
    environment.close()


@pytest.fixture
def connection(environment: Environment) -> Connection:
    connection = environment.connection()
    connection.dial()
    return connection


@pytest.fixture
def management(connection: Connection) -> Management:
    return connection.management()


@pytest.fixture
def name() -> str:
    """With characters that a path has to encode."""
    return f"a/b c%{uuid4()}"


class Enough(Exception):
    """Ends a consumer's loop."""


class Collector(AMQPMessagingHandler):
    """Does `settle` with each of `most` messages."""

    def __init__(self, most: int, settle: Callable[[Any, Any], None]) -> None:
        super().__init__()
        self.most = most
        self.settle = settle
        self.messages: list[Message] = []

    def on_amqp_message(self, event: Any) -> None:
        self.messages.append(event.message)
        self.settle(self.delivery_context, event)
        if len(self.messages) == self.most:
            raise Enough


def received(
    environment: Environment,
    queue: str,
    most: int,
    settle: Callable[[Any, Any], None] = lambda context, event: context.accept(event),
    options: StreamConsumerOptions | None = None,
) -> list[Message]:
    """The next messages of the queue, over a connection of their own."""
    handler = Collector(most, settle)
    connection = environment.connection()
    connection.dial()
    address = AddressHelper.queue_address(queue)
    consumer = connection.consumer(address, message_handler=handler, consumer_options=options)
    with pytest.raises(Enough):
        consumer.run()
    connection.close()
    return handler.messages


def test_a_queue_is_declared_shown_purged_and_deleted(
    connection: Connection, management: Management, name: str
) -> None:
    declared = QuorumQueueSpecification(name=name, max_len=10, message_ttl=timedelta(minutes=1))
    management.declare_queue(declared)
    management.declare_queue(declared)
    publisher = connection.publisher(AddressHelper.queue_address(name))
    for _ in range(3):
        assert publisher.publish(Message(body=b"m")).remote_state == Delivery.ACCEPTED
    info = management.queue_info(name)
    assert (info.name, info.queue_type, info.is_durable) == (name, QueueType.quorum, True)
    assert (info.message_count, info.consumer_count, info.is_exclusive) == (3, 0, False)
    assert info.arguments == {"x-queue-type": "quorum", "x-max-length": 10, "x-message-ttl": 60000}
    assert management.purge_queue(name) == 3
    assert management.queue_info(name).message_count == 0
    management.delete_queue(name)
    with pytest.raises(ValidationCodeException, match="404"):
        management.queue_info(name)
    management.delete_queue(name)


@pytest.mark.parametrize(
    "other",
    [
        lambda name: ClassicQueueSpecification(name=name, max_len=11),
        lambda name: ClassicQueueSpecification(name=name, max_len=10, is_durable=False),
        lambda name: StreamSpecification(name=name),
    ],
)
def test_a_queue_declared_otherwise_is_a_conflict(management: Management, name: str, other: Any) -> None:
    management.declare_queue(ClassicQueueSpecification(name=name, max_len=10))
    with pytest.raises(ValidationCodeException, match="ErrPreconditionFailed"):
        management.declare_queue(other(name))


def test_bindings_carry_messages_until_they_are_taken_back(
    environment: Environment, connection: Connection, management: Management, name: str
) -> None:
    first, second = f"{name}-1", f"{name}-2"
    management.declare_queue(ClassicQueueSpecification(name=name))
    management.declare_exchange(ExchangeSpecification(name=first, exchange_type=ExchangeType.fanout))
    management.declare_exchange(ExchangeSpecification(name=second, exchange_type=ExchangeType.topic))
    to_exchange = ExchangeToExchangeBindingSpecification(first, second)
    management.bind(to_exchange)
    path = management.bind(ExchangeToQueueBindingSpecification(second, name, "k;#"))
    publisher = connection.publisher(AddressHelper.exchange_address(first, "k;#"))
    assert publisher.publish(Message(body=b"m")).remote_state == Delivery.ACCEPTED
    management.unbind(path)
    with pytest.raises(SendException):
        publisher.publish(Message(body=b"m"))
    assert [message.body for message in received(environment, name, 1)] == [b"m"]
    for exchange in (first, second):
        management.delete_exchange(exchange)
    with pytest.raises(ValidationCodeException, match="400"):
        management.bind(to_exchange)


def test_an_exchange_declared_otherwise_is_a_conflict(management: Management, name: str) -> None:
    management.declare_exchange(ExchangeSpecification(name=name))
    with pytest.raises(ValidationCodeException, match="ErrPreconditionFailed"):
        management.declare_exchange(ExchangeSpecification(name=name, exchange_type=ExchangeType.topic))


def test_bindings_are_listed_with_what_deletes_them(management: Management, name: str) -> None:
    management.declare_queue(ClassicQueueSpecification(name=name))
    for number in range(2):
        body = {
            "source": "amq.headers",
            "destination_queue": name,
            "binding_key": "",
            "arguments": {"x-match": "all", "n": number},
        }
        management.request(body, "/bindings", "POST", [204])
    query = f"/bindings?src=amq.headers&dstq={AddressHelper.queue_address(name)[8:]}&key="
    found: Any = management.request(None, query, "GET", [200]).body
    assert sorted(binding["arguments"]["n"] for binding in found) == [0, 1]
    assert {binding["destination_queue"] for binding in found} == {name}
    gone, kept = found
    management.request(None, gone["location"], "DELETE", [204])
    assert management.request(None, query, "GET", [200]).body == [kept]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/queues/amq.mine", {}, 403),
        ("PUT", "/queues/", {}, 400),
        ("PUT", "/queues/x", {"durable": "yes"}, 400),
        ("PUT", "/queues/x", {"durables": True}, 400),
        ("PUT", "/queues/x", None, 400),
        ("PUT", "/queues/%ff", {}, 400),
        ("PUT", "/queues/x", {"arguments": {"x-max-length": -1}}, 400),
        ("PUT", "/exchanges/x", {"type": "nothing"}, 400),
        ("DELETE", "/exchanges/amq.topic", None, 403),
        ("DELETE", "/queues/no-such/messages", None, 400),
        ("POST", "/bindings", {"source": "amq.topic", "binding_key": "k"}, 400),
        ("GET", "/bindings?src=amq.topic", None, 400),
        ("DELETE", "/bindings/what", None, 400),
        ("PATCH", "/queues/x", None, 404),
        ("PUT", f"/queues/{'x' * 256}", {}, 400),
        ("PUT", f"/exchanges/{'x' * 256}", {}, 400),
        ("PUT", "/exchanges/x", {"type": "x" * 256}, 400),
        ("DELETE", f"/queues/{'%C3%A9' * 128}", None, 400),
        (
            "POST",
            "/bindings",
            {"source": "x", "destination_queue": "q", "binding_key": "k" * 256},
            400,
        ),
        ("GET", f"/bindings?src=amq.topic&dstq=q&key={'k' * 256}", None, 400),
        ("GET", "/nothing", None, 404),
    ],
)
def test_a_request_that_cannot_be_done_says_why(
    management: Management, method: str, path: str, body: Any, status: int
) -> None:
    answer = management.request(body, path, method, [status])
    assert isinstance(answer.body, str)
    assert answer.body


def test_an_exclusive_queue_is_its_connections_alone(
    connection: Connection, management: Management, name: str, amqp_port: int
) -> None:
    management.declare_queue(ClassicQueueSpecification(name=name, is_exclusive=True, is_auto_delete=True))
    assert management.queue_info(name).is_exclusive
    other = BlockingConnection(f"amqp://guest:guest@127.0.0.1:{amqp_port}", timeout=LIMIT_S)
    with pytest.raises(LinkDetached, match="amqp:resource-locked"):
        other.create_receiver(f"/queues/{AddressHelper.queue_address(name)[8:]}")
    other.close()


def test_a_request_without_its_pair_ends_the_link(amqp_port: int) -> None:
    connection = BlockingConnection(f"amqp://guest:guest@127.0.0.1:{amqp_port}", timeout=LIMIT_S)
    sender = connection.create_sender("/management", name="alone")
    request = ProtonMessage(id=1, address="/queues/x", subject="GET", reply_to="$me")
    delivery = sender.link.send(request)
    connection.wait(lambda: delivery.settled, timeout=LIMIT_S)
    assert delivery.remote_state == delivery.REJECTED
    assert "amqp:precondition-failed" in str(delivery.remote.condition)
    assert sender.link.state & Endpoint.REMOTE_ACTIVE
    connection.close()


def test_messages_are_accepted_requeued_and_discarded(
    environment: Environment, connection: Connection, management: Management, name: str
) -> None:
    letters = f"{name}-dead"
    management.declare_queue(ClassicQueueSpecification(name=letters))
    management.declare_queue(
        ClassicQueueSpecification(
            name=name, dead_letter_exchange="amq.direct", dead_letter_routing_key=letters
        )
    )
    management.bind(ExchangeToQueueBindingSpecification("amq.direct", letters, letters))
    connection.publisher(AddressHelper.queue_address(name)).publish(Message(body=b"m"))
    first = received(environment, name, 1, lambda context, event: context.requeue(event))
    again = received(environment, name, 1, lambda context, event: context.discard(event))
    dead = received(environment, letters, 1)
    assert [(message.delivery_count, message.first_acquirer) for message in first + again] == [
        (0, True),
        (0, False),
    ]
    assert (dead[0].body, dead[0].annotations["x-first-death-queue"]) == (b"m", name)


def test_a_stream_is_read_from_an_offset_and_through_filters(
    environment: Environment, connection: Connection, management: Management, name: str
) -> None:
    management.declare_queue(StreamSpecification(name=name))
    publisher = connection.publisher(AddressHelper.queue_address(name))
    for number in range(10):
        fruit = "banana" if number % 2 else "apple"
        message = Message(body=b"%d" % number, application_properties={"fruit": fruit})
        publisher.publish(message)
    first = StreamConsumerOptions(offset_specification=OffsetSpecification.first)
    everything = received(environment, name, 10, options=first)
    assert [message.body for message in everything] == [b"%d" % number for number in range(10)]
    assert [message.annotations["x-stream-offset"] for message in everything] == list(range(10))
    bananas = StreamConsumerOptions(4, StreamFilterOptions(application_properties={"fruit": "banana"}))
    assert [message.body for message in received(environment, name, 3, options=bananas)] == [b"5", b"7", b"9"]
    sql = StreamConsumerOptions(4, StreamFilterOptions(sql="fruit LIKE 'b%' AND p.subject IS NULL"))
    assert [message.body for message in received(environment, name, 3, options=sql)] == [b"5", b"7", b"9"]


def test_a_reply_comes_directly(environment: Environment, connection: Connection, name: str) -> None:
    connection.management().declare_queue(ClassicQueueSpecification(name=name))
    handler = Collector(1, lambda context, event: None)
    options = ConsumerOptions(settle_strategy=ConsumerSettleStrategy.DirectReplyTo)
    requester = connection.consumer(message_handler=handler, consumer_options=options)
    asked = Message(body=b"ping", reply_to=requester.address, correlation_id="7")
    connection.publisher(AddressHelper.queue_address(name)).publish(asked)
    (request,) = received(environment, name, 1)
    other = environment.connection()
    other.dial()
    sent = other.publisher(request.reply_to).publish(
        Message(body=b"pong", correlation_id=request.correlation_id)
    )
    assert sent.remote_state == Delivery.ACCEPTED
    with pytest.raises(Enough):
        requester.run()
    (reply,) = handler.messages
    assert (bytes(reply.body), reply.correlation_id) == (b"pong", "7")


def test_a_publisher_recovers_after_a_restart(tmp_path: Path) -> None:
    with Gateway(tmp_path / "data") as gateway:
        environment = Environment(
            uri=f"amqp://guest:guest@127.0.0.1:{gateway.amqp_port}/",
            recovery_configuration=RecoveryConfiguration(
                back_off_reconnect_interval=timedelta(seconds=1), MaxReconnectAttempts=60
            ),
        )
        connection = environment.connection()
        connection.dial()
        connection.management().declare_queue(QuorumQueueSpecification(name="q"))
        publisher = connection.publisher(AddressHelper.queue_address("q"))
        assert publisher.publish(Message(body=b"before")).remote_state == Delivery.ACCEPTED
        gateway.restart()
        # The client notices when it writes, and recovers then; that message may be lost or sent.
        with suppress(ConnectionClosed, SendException):
            publisher.publish(Message(body=b"between"))
        assert publisher.publish(Message(body=b"after")).remote_state == Delivery.ACCEPTED
        assert bytes(received(environment, "q", 2)[0].body) == b"before"
        environment.close()
