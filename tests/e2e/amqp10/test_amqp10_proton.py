"""AMQP 1.0 with python-qpid-proton as it is, and across protocols with pika and paho."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import paho.mqtt.client as mqtt
import pika
import pytest
from proton import Delivery, Disposition, Message, symbol
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import AtLeastOnce, AtMostOnce, Container, LinkOption, Selector
from proton.utils import BlockingConnection, LinkDetached, SendException

from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS

Connect = Callable[..., BlockingConnection]


@pytest.fixture
def connect(amqp_port: int) -> Iterator[Connect]:
    """Opens connections that are closed after the test."""
    opened: list[BlockingConnection] = []

    def open_one(user: str = "guest:guest", **options: Any) -> BlockingConnection:
        url = f"amqp://{user}@127.0.0.1:{amqp_port}"
        opened.append(BlockingConnection(url, timeout=LIMIT_S, allowed_mechs="PLAIN", **options))
        return opened[-1]

    yield open_one
    for connection in opened:
        with contextlib.suppress(Exception):
            connection.close()


@pytest.fixture
def channel(amqp_port: int) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port))
    yield connection.channel()
    connection.close()


@pytest.fixture
def queue(channel: Any) -> str:
    """A queue of its own for the test."""
    name = f"q-{uuid4()}"
    channel.queue_declare(name, durable=True, arguments={"x-max-length": 5, "x-overflow": "reject-publish"})
    return name


def test_metrics_count_the_protocol_by_its_own_name(tmp_path: Path) -> None:
    """While its client is there, and after it has gone."""
    with Gateway(tmp_path, settings={**SETTINGS, "metrics.listen": "127.0.0.1:0"}) as gateway:

        def published() -> float:
            page = httpx.get(f"http://127.0.0.1:{gateway.ports['metrics']}/metrics", timeout=LIMIT_S)
            name = 'rabbitmq_global_messages_received_total{protocol="amqp10"} '
            [line] = [line for line in page.text.splitlines() if line.startswith(name)]
            return float(line.removeprefix(name))

        assert published() == 0
        connection = BlockingConnection(
            f"amqp://guest:guest@127.0.0.1:{gateway.amqp_port}", timeout=LIMIT_S, allowed_mechs="PLAIN"
        )
        connection.create_sender("topic://metrics").send(Message(body="1"), timeout=LIMIT_S)
        assert published() == 1
        connection.close()
        assert published() == 1


def test_a_message_comes_as_it_was_sent(connect: Connect, queue: str) -> None:
    connection = connect()
    receiver = connection.create_receiver(f"/queues/{queue}")
    sender = connection.create_sender(f"/queues/{queue}")
    sent = Message(body={"k": [1, "x"]}, subject="s", durable=True, properties={"p": 1})
    sent.annotations = {symbol("x-opt-a"): "a"}
    delivery = sender.send(sent)
    assert delivery.remote_state == Delivery.ACCEPTED
    came = receiver.receive(timeout=LIMIT_S)
    assert (came.body, came.subject, came.properties) == (sent.body, "s", {"p": 1})
    assert came.annotations["x-opt-a"] == "a"
    assert came.first_acquirer
    receiver.accept()


@pytest.mark.parametrize("size", [0, 1, 131_000, 1_000_000])
def test_a_message_may_have_many_frames(connect: Connect, queue: str, size: int) -> None:
    connection = connect(max_frame_size=4096)
    receiver = connection.create_receiver(queue, credit=1)
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    connection.create_sender(queue).send(Message(body=body, inferred=True))
    assert bytes(receiver.receive(timeout=LIMIT_S).body) == body
    receiver.accept()


def test_released_and_modified_come_again_and_rejected_does_not(
    connect: Connect, queue: str, channel: Any
) -> None:
    connection = connect()
    connection.create_sender(queue).send(Message(body="m"))
    receiver = connection.create_receiver(queue)
    receiver.receive(timeout=LIMIT_S)
    receiver.release(delivered=False)
    again = receiver.receive(timeout=LIMIT_S)
    assert (again.delivery_count, again.first_acquirer) == (0, False)
    delivery = receiver.fetcher.unsettled.popleft()
    delivery.local.failed = True
    delivery.update(Delivery.MODIFIED)
    delivery.settle()
    assert receiver.receive(timeout=LIMIT_S).delivery_count == 1
    receiver.reject()
    connection.create_sender(queue, name="second").send(Message(body="next"))
    assert receiver.receive(timeout=LIMIT_S).body == "next"
    receiver.accept()


def test_unsettled_messages_come_again_when_the_link_ends(connect: Connect, queue: str) -> None:
    connection = connect()
    connection.create_sender(queue).send(Message(body="m"))
    first = connection.create_receiver(queue)
    first.receive(timeout=LIMIT_S)
    first.close()
    second = connection.create_receiver(queue)
    again = second.receive(timeout=LIMIT_S)
    assert (again.delivery_count, again.first_acquirer) == (0, False)
    second.accept()


def test_a_message_to_nowhere_is_released_and_one_to_a_full_queue_is_rejected(
    connect: Connect, queue: str
) -> None:
    connection = connect()
    with pytest.raises(SendException) as nowhere:
        connection.create_sender(f"/exchanges/amq.direct/{uuid4()}").send(Message(body="m"))
    assert nowhere.value.state == Disposition.RELEASED
    sender = connection.create_sender(queue)
    for _ in range(5):
        sender.send(Message(body="m"))
    with pytest.raises(SendException) as full:
        sender.send(Message(body="m"))
    assert full.value.state == Disposition.REJECTED


def test_a_null_target_takes_the_address_of_each_message(connect: Connect, queue: str) -> None:
    connection = connect()
    sender = connection.create_sender(None)
    sender.send(Message(body="m", address=f"/queues/{queue}"))
    with pytest.raises(SendException) as refused:
        sender.send(Message(body="m", address="/nothing/like/this"))
    assert refused.value.state == Disposition.REJECTED
    receiver = connection.create_receiver(queue)
    assert receiver.receive(timeout=LIMIT_S).body == "m"
    receiver.accept()


def test_a_topic_is_read_by_a_queue_of_the_link(connect: Connect) -> None:
    connection = connect()
    receivers = [connection.create_receiver("topic://news.*", name=name) for name in "ab"]
    connection.create_sender("topic://news.today").send(Message(body="n"))
    for receiver in receivers:
        assert receiver.receive(timeout=LIMIT_S).body == "n"
        receiver.accept()


def test_a_request_is_answered_to_a_dynamic_node(connect: Connect, queue: str) -> None:
    client, server = connect(), connect()
    answers = client.create_receiver(None, dynamic=True)
    address = answers.link.remote_source.address
    client.create_sender(queue).send(Message(body="2+2", reply_to=address, correlation_id=1))
    requests = server.create_receiver(queue)
    request = requests.receive(timeout=LIMIT_S)
    requests.accept()
    reply = Message(body="4", address=request.reply_to, correlation_id=request.correlation_id)
    server.create_sender(None).send(reply)
    assert answers.receive(timeout=LIMIT_S).body == "4"


def test_settled_messages_go_both_ways(connect: Connect, queue: str) -> None:
    connection = connect()
    sender = connection.create_sender(queue, options=AtMostOnce())
    sender.link.send(Message(body="m"))
    receiver = connection.create_receiver(queue, options=AtMostOnce())
    assert receiver.receive(timeout=LIMIT_S).body == "m"
    receiver.close()
    again = connection.create_receiver(queue, options=AtLeastOnce())
    connection.create_sender(queue, name="second").send(Message(body="after"))
    assert again.receive(timeout=LIMIT_S).body == "after"
    again.accept()


class Drainer(MessagingHandler):
    """Asks for ten messages where there are three, and drains."""

    class _Drain(LinkOption):
        def apply(self, link: Any) -> None:
            link.drain(10)

    def __init__(self, url: str, address: str) -> None:
        super().__init__(prefetch=0)
        self.url, self.address = url, address
        self.bodies: list[Any] = []
        self.left = -1

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(self.url, allowed_mechs="PLAIN")
        event.container.create_receiver(self.connection, self.address, options=self._Drain())

    def on_message(self, event: Any) -> None:
        self.bodies.append(event.message.body)

    def on_link_flow(self, event: Any) -> None:
        if event.receiver and event.receiver.drained() is not None and event.receiver.credit == 0:
            self.left = event.receiver.credit
            self.connection.close()


def test_drain_gives_back_the_credit_that_is_left(connect: Connect, queue: str, amqp_port: int) -> None:
    sender = connect().create_sender(queue)
    for body in range(3):
        sender.send(Message(body=body))
    drainer = Drainer(f"amqp://guest:guest@127.0.0.1:{amqp_port}", queue)
    container = Container(drainer)
    runner = threading.Thread(target=container.run, daemon=True)
    runner.start()
    runner.join(LIMIT_S)
    assert not runner.is_alive()
    assert (drainer.bodies, drainer.left) == ([0, 1, 2], 0)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("/queues/no-such-queue", "amqp:not-found"),
        ("/exchanges/no-such-exchange/k", "amqp:not-found"),
        ("/nothing", "amqp:invalid-field"),
    ],
)
def test_a_link_to_a_wrong_address_is_detached_with_the_reason(
    connect: Connect, address: str, said: str
) -> None:
    connection = connect()
    for create in (connection.create_sender, connection.create_receiver):
        with pytest.raises(LinkDetached, match=said):
            create(address)


def test_a_selector_of_a_queue_is_refused_and_one_of_an_exchange_is_not(connect: Connect, queue: str) -> None:
    connection = connect()
    with pytest.raises(LinkDetached, match="amqp:not-implemented"):
        connection.create_receiver(queue, options=Selector("a = 1"))
    receiver = connection.create_receiver("/exchanges/amq.fanout", options=Selector("a = 1"), credit=10)
    sender = connection.create_sender("/exchanges/amq.fanout", name="sender")
    for number in range(3):
        sender.send(Message(body=f"{number}", properties={"a": number}))
    assert receiver.receive(timeout=LIMIT_S).body == "1"
    receiver.accept()


class Declared(TransactionHandler):  # type: ignore[misc]
    """A transaction, when there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.transaction: Any = None
        self.over = False

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction

    def on_transaction_committed(self, event: Any) -> None:
        self.over = True


def test_the_management_api_shows_the_connection(tmp_path: Path) -> None:
    with Gateway(tmp_path / "data", settings=SETTINGS) as gateway:
        connection = BlockingConnection(
            f"amqp://guest:guest@127.0.0.1:{gateway.amqp_port}", timeout=LIMIT_S, allowed_mechs="PLAIN"
        )
        receiver = connection.create_receiver(None, dynamic=True)
        url = f"http://127.0.0.1:{gateway.ports['management']}/api"
        shown = httpx.get(f"{url}/connections", auth=("guest", "guest"), timeout=LIMIT_S).json()
        assert [(one["protocol"], one["user"]) for one in shown] == [("AMQP 1-0", "guest")]
        name = receiver.link.remote_source.address.removeprefix("/queues/")
        path = f"{url}/connections/{quote(shown[0]['name'], safe='')}/sessions"
        (session,) = httpx.get(path, auth=("guest", "guest"), timeout=LIMIT_S).json()
        assert (session["channel_number"], session["outgoing_unsettled_deliveries"]) == (0, 0)
        (link,) = session["outgoing_links"]
        assert (link["queue_name"], link["source_address"]) == (name, f"/queues/{name}")
        assert session["incoming_links"] == []
        queue = httpx.get(f"{url}/queues/%2F/{name}", auth=("guest", "guest"), timeout=LIMIT_S).json()
        assert queue["consumers"] == 1
        handler = Declared()
        connection.container.declare_transaction(connection.conn, handler)
        connection.wait(lambda: handler.transaction is not None, timeout=LIMIT_S)
        (listed,) = httpx.get(f"{url}/transactions/%2F", auth=("guest", "guest"), timeout=LIMIT_S).json()
        assert (listed["protocol"], listed["user"], listed["messages"]) == ("amqp10", "guest", 0)
        handler.transaction.commit()
        connection.wait(lambda: handler.over, timeout=LIMIT_S)
        assert httpx.get(f"{url}/transactions/%2F", auth=("guest", "guest"), timeout=LIMIT_S).json() == []
        connection.close()


def test_a_wrong_password_is_refused(connect: Connect) -> None:
    with pytest.raises(Exception, match=r"[Aa]uthentication"):
        connect("guest:wrong")


def test_a_queue_that_is_deleted_detaches_its_receivers(connect: Connect, queue: str, channel: Any) -> None:
    connection = connect()
    receiver = connection.create_receiver(queue)
    channel.queue_delete(queue)
    with pytest.raises(LinkDetached, match="amqp:resource-deleted"):
        receiver.receive(timeout=LIMIT_S)


def test_amqp_0_9_1_and_1_0_exchange_messages(connect: Connect, queue: str, channel: Any) -> None:
    connection = connect()
    properties = pika.BasicProperties(
        message_id="m", headers={"h": 1}, delivery_mode=2, reply_to="r", type="t", priority=3
    )
    channel.basic_publish("", queue, b"from 0-9-1", properties)
    receiver = connection.create_receiver(queue)
    came = receiver.receive(timeout=LIMIT_S)
    receiver.accept()
    receiver.close()
    assert (bytes(came.body), came.id, came.properties) == (b"from 0-9-1", "m", {"h": 1})
    assert (came.reply_to, came.durable, came.priority) == ("/queues/r", True, 3)
    assert came.annotations["x-routing-key"] == queue
    message = Message(body=b"from 1.0", inferred=True, properties={"h": "v"}, content_type="text/plain")
    connection.create_sender(queue).send(message)
    _, found, body = channel.basic_get(queue, auto_ack=True)
    assert (body, found.content_type, found.headers["h"]) == (b"from 1.0", "text/plain", "v")


def test_sections_that_0_9_1_has_no_words_for_are_kept_for_1_0_alone(
    connect: Connect, queue: str, channel: Any
) -> None:
    connection = connect()
    dying = f"{queue}-dying"
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
    channel.queue_declare(dying, durable=True, arguments=arguments)
    sender = connection.create_sender(dying)
    receiver = connection.create_receiver(dying)
    for _ in range(2):
        sender.send(Message(body=b"m", inferred=True, subject="s", properties={"h": 1}))
        receiver.receive(timeout=LIMIT_S)
        receiver.reject()
    dead = connection.create_receiver(queue, credit=1)
    came = dead.receive(timeout=LIMIT_S)
    assert (came.subject, came.annotations["x-first-death-queue"]) == ("s", dying)
    dead.accept()
    dead.close()
    _, properties, _ = channel.basic_get(queue, auto_ack=True)
    assert properties.headers["h"] == 1
    assert "x-amqp10-sections" not in properties.headers


def test_a_header_of_0_9_1_is_no_section_of_1_0(connect: Connect, queue: str, channel: Any) -> None:
    forged = b"\x00\x53\x73\xc0\x08\x02\x40\xa0\x04root"  # properties with the user-id root
    properties = pika.BasicProperties(headers={"x-amqp10-sections": forged}, user_id="guest")
    channel.basic_publish("", queue, b"m", properties)
    came = connect().create_receiver(queue).receive(timeout=LIMIT_S)
    assert bytes(came.user_id) == b"guest"


def test_mqtt_and_amqp_1_0_exchange_messages(connect: Connect, mqtt_port: int) -> None:
    connection = connect()
    topic = f"t/{uuid4()}"
    receiver = connection.create_receiver(f"topic://{topic.replace('/', '.')}")
    heard: list[bytes] = []
    ready, got = threading.Event(), threading.Event()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.username_pw_set("guest", "guest")
    client.on_subscribe = lambda *_: ready.set()

    def on_message(_client: Any, _userdata: Any, message: Any) -> None:
        heard.append(message.payload)
        got.set()

    client.on_message = on_message
    client.connect("127.0.0.1", mqtt_port)
    client.subscribe(topic, 1)
    client.loop_start()
    try:
        assert ready.wait(LIMIT_S)
        sender = connection.create_sender(f"topic://{topic.replace('/', '.')}")
        sender.send(Message(body=b"from 1.0", inferred=True))
        assert got.wait(LIMIT_S)
        assert heard == [b"from 1.0"]
        assert bytes(receiver.receive(timeout=LIMIT_S).body) == b"from 1.0"
        receiver.accept()
        client.publish(topic, b"from mqtt", 1)
        assert bytes(receiver.receive(timeout=LIMIT_S).body) == b"from mqtt"
        receiver.accept()
    finally:
        client.loop_stop()
        client.disconnect()


def test_a_headers_exchange_looks_at_application_properties(
    connect: Connect, queue: str, channel: Any
) -> None:
    channel.queue_bind(queue, "amq.headers", "", {"x-match": "all", "colour": "red"})
    connection = connect()
    sender = connection.create_sender("/exchanges/amq.headers")
    sender.send(Message(body="red", properties={"colour": "red"}))
    with pytest.raises(SendException):
        sender.send(Message(body="blue", properties={"colour": "blue"}))
    receiver = connection.create_receiver(queue)
    assert receiver.receive(timeout=LIMIT_S).body == "red"
    receiver.accept()


def test_the_user_id_of_a_message_is_that_of_the_login(connect: Connect, queue: str) -> None:
    sender = connect().create_sender(queue)
    sender.send(Message(body="m", user_id=b"guest"))
    with pytest.raises(SendException) as refused:
        sender.send(Message(body="m", user_id=b"another"))
    assert refused.value.state == Disposition.REJECTED
