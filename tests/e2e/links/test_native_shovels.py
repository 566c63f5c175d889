"""Shovels between gateways by the native protocol: each message is brought once, over kills of either."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.support.brokers import Gateway
from tests.support.data_plane import until
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("this is about the management API of penstock")

_NATIVE = {**SETTINGS, "native.listen": "127.0.0.1:0"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("source"), settings=_NATIVE) as running:
        running.settings["native.listen"] = f"127.0.0.1:{running.ports['native']}"
        yield running


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("target"), settings=_NATIVE) as running:
        yield running


def shovel(gateway: Gateway, name: str, source: Gateway, **value: Any) -> None:
    settings = {
        "src-protocol": "penstock",
        "src-uri": f"penstock://guest:guest@127.0.0.1:{source.ports['native']}",
        "dest-protocol": "penstock",
        "dest-uri": "penstock://",
        "reconnect-delay": 0.1,
        **{key.replace("_", "-"): one for key, one in value.items()},
    }
    api = Api(gateway)
    answer = api.send("PUT", f"parameters/shovel/%2F/{name}", {"value": settings})
    api.close()
    assert answer.status_code == 201, answer.text


def publish(gateway: Gateway, queue: str, numbers: range, **arguments: Any) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, arguments=arguments or None)
        channel.confirm_delivery()
        properties = pika.BasicProperties(delivery_mode=2, headers={"a": 1})
        for number in numbers:
            channel.basic_publish("", queue, b"%d" % number, properties)


def waiting(gateway: Gateway, queue: str) -> int:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        return int(connection.channel().queue_declare(queue, passive=True).method.message_count)


def bodies(gateway: Gateway, queue: str, count: int) -> list[int]:
    """So many messages of a queue, and whatever else is in it then."""
    found: list[int] = []
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        channel = connection.channel()

        def took() -> bool:
            while True:
                _, properties, body = channel.basic_get(queue, auto_ack=True)
                if properties is None:
                    return len(found) >= count
                assert properties.headers == {"a": 1}
                found.append(int(body))

        until(took)
    return found


@pytest.mark.parametrize("kind", ["classic", "stream"])
def test_messages_come_once_over_kills_of_either_side(
    source: Gateway, target: Gateway, unique: str, kind: str
) -> None:
    arguments = {"x-queue-type": "stream"} if kind == "stream" else {}
    publish(target, unique, range(0))
    publish(source, unique, range(300), **arguments)
    shovel(target, unique, source, src_queue=unique, dest_queue=unique, src_prefetch_count=50)
    until(lambda: waiting(target, unique) == 300)
    for number, gateway in enumerate((source, target), start=1):
        publish(source, unique, range(300 * number, 300 * number + 150), **arguments)
        gateway.kill9()
        gateway.start()
        publish(source, unique, range(300 * number + 150, 300 * number + 300), **arguments)
        count = 300 * (number + 1)
        until(lambda count=count: waiting(target, unique) >= count)
    assert bodies(target, unique, 900) == list(range(900))
    api = Api(target)
    until(lambda: api.get(f"shovels/vhost/%2F/{unique}")["pending"] == 0)
    assert api.get(f"shovels/vhost/%2F/{unique}")["src_protocol"] == "penstock"
    assert api.status("DELETE", f"shovels/vhost/%2F/{unique}") == 204
    api.close()


def test_a_source_that_begins_anew_loses_nothing(tmp_path: Path, target: Gateway, unique: str) -> None:
    """Its positions are lower than those that the target has seen."""
    publish(target, unique, range(0))
    with Gateway(tmp_path / "source", settings=_NATIVE) as source:
        source.settings["native.listen"] = f"127.0.0.1:{source.ports['native']}"
        publish(source, unique, range(300))
        shovel(target, unique, source, src_queue=unique, dest_queue=unique)
        until(lambda: waiting(target, unique) == 300)
        source.terminate()
        shutil.rmtree(source.data_dir)
        source.start()
        publish(source, unique, range(300, 320))
        assert bodies(target, unique, 320) == list(range(320))
        api = Api(target)
        assert api.status("DELETE", f"shovels/vhost/%2F/{unique}") == 204
        api.close()


def test_mistakes_are_refused(target: Gateway, unique: str) -> None:
    api = Api(target)

    def put(**value: Any) -> str:
        settings = {key.replace("_", "-"): one for key, one in value.items()}
        answer = api.send("PUT", f"parameters/shovel/%2F/{unique}", {"value": settings})
        assert answer.status_code == 400
        return str(answer.json()["reason"])

    both = {"src_protocol": "penstock", "dest_protocol": "penstock", "src_queue": "a", "dest_queue": "b"}
    assert "should begin with penstock://" in put(**both, src_uri="amqp://", dest_uri="penstock://")
    assert "should begin with amqp://" in put(src_uri="penstock://", src_queue="a", dest_uri="amqp://")
    away = {"src_uri": "penstock://", "dest_uri": "penstock://"}
    assert "both be penstock" in put(**{**both, **away, "dest_protocol": "amqp091"})
    assert "ack-mode: not with" in put(**both, **away, ack_mode="no-ack")
    api.close()
