"""Shovels by AMQP 1.0, at one end or both, between queues of a gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.support.brokers import Gateway
from tests.support.data_plane import until
from tests.support.management import SETTINGS, Api
from tests.support.shovels import Channel, fill, put, state, take

pytestmark = pytest.mark.penstock_only("this is about the management API of penstock")

_PROTOCOLS = [("amqp10", "amqp10"), ("amqp091", "amqp10"), ("amqp10", "amqp091")]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("gateway"), settings=SETTINGS) as running:
        yield running


def ends(protocols: tuple[str, str], source: str, target: str, uri: str = "amqp://") -> dict[str, str]:
    """The parameters of a shovel between two queues, the source of which is the gateway itself."""
    found = {
        "src_protocol": protocols[0],
        "src_uri": "amqp://",
        "dest_protocol": protocols[1],
        "dest_uri": uri,
    }
    for end, protocol, queue in (("src", protocols[0], source), ("dest", protocols[1], target)):
        key, value = ("address", f"/queues/{queue}") if protocol == "amqp10" else ("queue", queue)
        found[f"{end}_{key}"] = value
    return found


def ready(channel: Channel, queue: str) -> int:
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    return count


@pytest.mark.parametrize("ack_mode", ["on-confirm", "on-publish", "no-ack"])
@pytest.mark.parametrize("protocols", _PROTOCOLS)
def test_messages_move_in_order_with_their_properties(
    gateway: Gateway, api: Api, channel: Channel, unique: str, protocols: tuple[str, str], ack_mode: str
) -> None:
    source, target = f"{unique}.in", f"{unique}.out"
    channel.queue_declare(target, durable=True)
    fill(channel, source, 300, headers={"a": 1}, message_id="m", delivery_mode=2, content_type="text/plain")
    uri = f"amqp://guest:guest@127.0.0.1:{gateway.amqp_port}"
    put(
        api,
        unique,
        **ends(protocols, source, target, uri),
        src_prefetch_count=20,
        dest_add_forward_headers=True,
        ack_mode=ack_mode,
    )
    got = take(channel, target, 300)
    assert [body for _, body in got] == [b"%d" % number for number in range(300)]
    for properties, _ in got:
        assert (properties.message_id, properties.delivery_mode) == ("m", 2)
        assert properties.content_type == "text/plain" and properties.headers["a"] == 1
        if protocols[1] == "amqp10":
            assert properties.headers["shovel-name"] == unique
            assert properties.headers["shovel-type"] == "dynamic"
        else:
            (hop,) = properties.headers["x-shovelled"]
            assert hop["shovel-name"] == unique and hop["src-address"] == f"/queues/{source}"

    until(lambda: state(api, unique)["forwarded"] == 300)
    shown = state(api, unique)
    assert shown["state"] == "running" and shown["pending"] == 0 and shown["ack_mode"] == ack_mode
    assert (shown["src_protocol"], shown["dest_protocol"]) == protocols
    assert shown["dest_uri"].startswith("amqp://guest:******@")
    assert api.status("DELETE", f"shovels/vhost/%2F/{unique}") == 204
    # Nothing is left at the source, and nothing comes again.
    until(lambda: ready(channel, source) == 0)
    assert ready(channel, target) == 0


@pytest.mark.parametrize("protocols", _PROTOCOLS)
def test_messages_larger_than_a_frame(
    api: Api, channel: Channel, unique: str, protocols: tuple[str, str]
) -> None:
    source, target = f"{unique}.in", f"{unique}.out"
    bodies = [b"a" * 300_000, b"", b"b" * 131_072, b"c"]
    for queue in (source, target):
        channel.queue_declare(queue, durable=True)
    for body in bodies:
        channel.basic_publish("", source, body)
    put(api, unique, **ends(protocols, source, target))
    assert [body for _, body in take(channel, target, 4)] == bodies


@pytest.mark.parametrize("protocols", _PROTOCOLS)
def test_a_shovel_goes_after_a_number_of_messages(
    api: Api, channel: Channel, unique: str, protocols: tuple[str, str]
) -> None:
    source, target = f"{unique}.in", f"{unique}.out"
    channel.queue_declare(target, durable=True)
    fill(channel, source, 10)
    put(api, unique, **ends(protocols, source, target), src_delete_after=7)
    until(lambda: api.status("GET", f"shovels/vhost/%2F/{unique}") == 404)
    assert [body for _, body in take(channel, target, 7)] == [b"%d" % number for number in range(7)]
    until(lambda: ready(channel, source) == 3)
    assert ready(channel, target) == 0


def test_sections_are_added(api: Api, channel: Channel, unique: str) -> None:
    source, target = f"{unique}.in", f"{unique}.out"
    channel.queue_declare(target, durable=True)
    fill(channel, source, 1, headers={"a": "1", "kept": "k"}, message_id="old", correlation_id="c")
    put(
        api,
        unique,
        **ends(("amqp10", "amqp10"), source, target),
        dest_properties={"message_id": "new", "reply_to": "r"},
        dest_application_properties={"a": "2"},
        dest_message_annotations={"x-b": "3"},
        dest_add_timestamp_header=True,
    )
    ((properties, body),) = take(channel, target, 1)
    assert body == b"0" and properties.headers == {"a": "2", "kept": "k", "x-b": "3"}
    assert (properties.message_id, properties.correlation_id, properties.reply_to) == ("new", "c", "r")
    assert properties.timestamp > 1_700_000_000


def test_another_vhost_and_an_exchange_with_keys_of_subjects(
    api: Api, channel: Channel, gateway: Gateway, unique: str
) -> None:
    assert api.status("PUT", f"vhosts/{unique}") == 201
    there = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, unique)
    with pika.BlockingConnection(there) as connection:
        fill(connection.channel(), "q", 3)
        channel.queue_declare(unique, durable=True)
        channel.queue_bind(unique, "amq.topic", "orders.#")
        put(
            api,
            unique,
            src_protocol="amqp10",
            src_uri=f"amqp:///{unique}",
            src_address="/queues/q",
            dest_uri="amqp://",
            dest_exchange="amq.topic",
            dest_exchange_key="orders.eu",
        )
        got = take(channel, unique, 3)
    assert [body for _, body in got] == [b"0", b"1", b"2"]
    assert api.status("DELETE", f"parameters/shovel/%2F/{unique}") == 204
    assert api.status("DELETE", f"vhosts/{unique}") == 204


def reason(api: Api, channel: Channel, name: str, **changed: Any) -> str:
    """Why such a shovel is down."""
    fill(channel, f"{name}.in", 1)
    channel.queue_declare(f"{name}.out", durable=True)
    value = ends(("amqp10", "amqp10"), f"{name}.in", f"{name}.out") | changed
    put(api, name, **value, reconnect_delay=0.05)
    until(lambda: state(api, name).get("reason"))
    told: str = state(api, name)["reason"]
    until(lambda: state(api, name)["faults"] >= 3)
    return told


def test_one_that_is_refused_says_why(api: Api, channel: Channel, gateway: Gateway, unique: str) -> None:
    place = f"127.0.0.1:{gateway.amqp_port}"
    told = reason(api, channel, unique, dest_address="/queues/none")
    assert told.startswith("destination: the broker closed with amqp:not-found")
    told = reason(api, channel, f"{unique}.1", src_address="/queues/none")
    assert told.startswith("source: the broker closed with amqp:not-found")
    told = reason(api, channel, f"{unique}.2", dest_uri=f"amqp://guest:hidden@{place}")
    assert told == "destination: the broker refused the login of 'guest'"
    told = reason(api, channel, f"{unique}.3", src_uri="amqp://127.0.0.1:1")
    assert told.startswith("source: no connection to 127.0.0.1:1:")
    channel.exchange_declare(unique, "direct")
    told = reason(api, channel, f"{unique}.4", dest_address=f"/exchanges/{unique}/nowhere")
    assert told == f"destination: it has no place for a message to '/exchanges/{unique}/nowhere'"
    assert ready(channel, f"{unique}.4.in") + state(api, f"{unique}.4")["pending"] == 1
    assert "hidden" not in gateway.log_text()


def test_a_full_queue_is_waited_for(api: Api, channel: Channel, unique: str) -> None:
    source, target = f"{unique}.in", f"{unique}.out"
    arguments = {"x-max-length": 2, "x-overflow": "reject-publish"}
    channel.queue_declare(target, durable=True, arguments=arguments)
    fill(channel, source, 5)
    put(api, unique, **ends(("amqp091", "amqp10"), source, target), reconnect_delay=0.05)
    until(lambda: "refuses a message" in state(api, unique).get("reason", ""))
    got: set[bytes] = set()

    def all_came() -> bool:
        _, _, body = channel.basic_get(target, auto_ack=True)
        if body is not None:
            got.add(body)
        return len(got) == 5

    until(all_came)


def publish(gateway: Gateway, queue: str, numbers: range) -> None:
    """Publish persistent messages with confirms."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.confirm_delivery()
        for number in numbers:
            channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(delivery_mode=2))


def received(gateway: Gateway, queue: str, count: int) -> list[int]:
    """The numbers that came until there were so many different ones."""
    found: list[int] = []
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        channel = connection.channel()

        def all_came() -> bool:
            _, _, body = channel.basic_get(queue, auto_ack=True)
            if body is not None:
                found.append(int(body))
            return len(set(found)) >= count

        until(all_came)
    return found


@pytest.mark.parametrize("protocols", _PROTOCOLS)
def test_nothing_is_lost_over_kills(
    tmp_path: Path, gateway: Gateway, unique: str, protocols: tuple[str, str]
) -> None:
    """The shovel runs in a gateway that is killed in turn with the one that its messages come from."""
    with Gateway(tmp_path / "target", settings=SETTINGS) as target:
        # The port stays over a restart.
        target.settings["management.listen"] = f"127.0.0.1:{target.ports['management']}"
        publish(gateway, unique, range(0))
        publish(target, unique, range(0))
        value = ends(protocols, unique, unique)
        value |= {"src_uri": f"amqp://guest:guest@127.0.0.1:{gateway.amqp_port}", "dest_uri": "amqp://"}
        api = Api(target)
        put(api, unique, **value, src_prefetch_count=50, reconnect_delay=0.05)
        for number in range(4):
            publish(gateway, unique, range(100 * number, 100 * number + 50))
            killed = (gateway, target)[number % 2]
            killed.kill9()
            killed.start()
            publish(gateway, unique, range(100 * number + 50, 100 * number + 100))
        got = received(target, unique, 400)
        assert set(got) == set(range(400))
        # A kill repeats what was under way, and what its gateway had not yet written of acknowledgements.
        until(lambda: state(api, unique)["pending"] == 0 and state(api, unique)["state"] == "running")
        assert api.status("DELETE", f"shovels/vhost/%2F/{unique}") == 204
        api.close()
