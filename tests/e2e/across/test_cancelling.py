"""Delayed messages that are cancelled: by name, whichever protocol they came by, or by position."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pika
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import penstock
from penstock.sdk.errors import ClientError
from tests.e2e.mqtt.mqtt_clients import connected
from tests.support.brokers import Gateway, free_port
from tests.support.data_plane import SERVED, open_client
from tests.support.limits import LIMIT_S
from tests.support.management import Api

pytestmark = [
    pytest.mark.penstock_only("RabbitMQ and Mosquitto have no such thing"),
]

DAY_MS = 86_400_000
TOPIC = "later/t"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {**SERVED, "native.listen": f"127.0.0.1:{free_port()}"}
    with Gateway(tmp_path_factory.mktemp("cancelling"), settings=settings) as running:
        yield running


def waiting(gateway: Gateway) -> int:
    """How many messages wait for their time."""
    api = Api(gateway)
    found = int(api.get("overview")["penstock"]["delayed"])
    api.close()
    return found


def by_amqp(gateway: Gateway, headers: dict[str, object], *, mandatory: bool = False) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(headers=headers, delivery_mode=2)
        channel.basic_publish("amq.topic", "later.t", b"amqp", properties, mandatory=mandatory)


def amqp_schedules(gateway: Gateway, name: str) -> None:
    by_amqp(gateway, {"x-penstock-deliver-after": DAY_MS, "x-penstock-delay-id": name})


def amqp_cancels(gateway: Gateway, name: str) -> bool:
    try:
        by_amqp(gateway, {"x-penstock-cancel": name}, mandatory=True)
    except pika.exceptions.UnroutableError:
        return False
    return True


def by_mqtt(gateway: Gateway, *user_properties: tuple[str, str]) -> int:
    """The reason of its PUBACK."""
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = list(user_properties)
    answered: queue.Queue[int] = queue.Queue()
    with connected(gateway.mqtt_port, version=5) as client:
        client.paho.on_publish = lambda _, __, ___, reason, ____: answered.put(reason.value)
        client.paho.publish(TOPIC, b"mqtt", 1, properties=properties)
        return answered.get(timeout=LIMIT_S)


def mqtt_schedules(gateway: Gateway, name: str) -> None:
    assert by_mqtt(gateway, ("penstock-deliver-after", str(DAY_MS)), ("penstock-delay-id", name)) == 0


def mqtt_cancels(gateway: Gateway, name: str) -> bool:
    reason = by_mqtt(gateway, ("penstock-cancel", name))
    assert reason in (0, 0x10)
    return reason == 0


def http_schedules(gateway: Gateway, name: str) -> None:
    with open_client(gateway) as http:
        message = {"value": "x", "delay_ms": DAY_MS, "delay_id": name}
        answer = http.post("exchanges/amq.topic/messages?routing_key=later.t", json=message)
        assert answer.status_code == 200, answer.text


def http_schedules_to_a_topic(gateway: Gateway, name: str) -> None:
    with open_client(gateway) as http:
        headers = {"content-type": "text/plain", "penstock-delay-ms": str(DAY_MS), "penstock-delay-id": name}
        answer = http.post(f"mqtt/messages?topic={TOPIC}", content=b"x", headers=headers)
        assert answer.status_code == 200, answer.text


def http_cancels(gateway: Gateway, name: str) -> bool:
    with open_client(gateway) as http:
        status = http.delete(f"exchanges/amq.topic/delayed/{name}").status_code
    assert status in (204, 404)
    return status == 204


def native_schedules(gateway: Gateway, name: str) -> None:
    async def schedule() -> None:
        address = {"exchange": "amq.topic", "routing_key": "later.t"}
        async with sdk(gateway) as client, client.producer(**address) as producer:
            await producer.send("native", deliver_after_s=DAY_MS / 1000, delay_id=name)

    asyncio.run(schedule())


def native_cancels(gateway: Gateway, name: str) -> bool:
    async def cancel() -> bool:
        async with sdk(gateway) as client:
            return await client.cancel(None, name, exchange="amq.topic", routing_key="later.t")

    return asyncio.run(cancel())


def sdk(gateway: Gateway) -> penstock.Client:
    return penstock.connect(f"penstock://{gateway.settings['native.listen']}", connect_timeout_s=60)


SCHEDULES = [amqp_schedules, mqtt_schedules, http_schedules, http_schedules_to_a_topic, native_schedules]
CANCELS = [amqp_cancels, mqtt_cancels, http_cancels, native_cancels]


@pytest.mark.parametrize("cancels", CANCELS)
def test_a_name_is_cancelled_whoever_gave_it(
    gateway: Gateway, cancels: Callable[[Gateway, str], bool], unique: str
) -> None:
    before = waiting(gateway)
    for schedules in SCHEDULES:
        schedules(gateway, f"{unique}-{schedules.__name__}")
    assert waiting(gateway) == before + len(SCHEDULES)
    for left, schedules in zip((4, 3, 2, 1, 0), SCHEDULES, strict=True):
        assert cancels(gateway, f"{unique}-{schedules.__name__}")
        assert waiting(gateway) == before + left
        assert not cancels(gateway, f"{unique}-{schedules.__name__}"), "none of this name waits"


@pytest.mark.parametrize("schedules", SCHEDULES)
def test_a_name_given_again_replaces(
    gateway: Gateway, schedules: Callable[[Gateway, str], None], unique: str
) -> None:
    before = waiting(gateway)
    schedules(gateway, unique)
    schedules(gateway, unique)
    assert waiting(gateway) == before + 1
    assert http_cancels(gateway, unique)
    assert waiting(gateway) == before


def test_names_of_a_topics_messages_are_those_of_the_default_exchange(gateway: Gateway, unique: str) -> None:
    """One that the SDK gave is replaced by HTTP, and the other way round; without a delay it comes now."""
    before = waiting(gateway)

    async def replaced(http: httpx.Client) -> None:
        async with sdk(gateway) as client, client.producer(unique) as producer:
            later = {"value": "http", "delay_ms": DAY_MS, "delay_id": "n"}
            for _ in range(2):
                sent = await producer.send("sdk", deliver_after_s=DAY_MS / 1000, delay_id="n")
                assert waiting(gateway) == before + 1
                assert http.post(f"streams/{unique}/messages", json=later).status_code == 200
                assert waiting(gateway) == before + 1
            assert not await client.cancel(unique, sent), "it was replaced"
            await producer.send("now", delay_id="n")
            async with client.reader(unique, start="earliest") as reader:
                message = await reader.receive(LIMIT_S)
            assert message is not None and message.body == b"now"
            assert waiting(gateway) == before and not await client.cancel(unique, "n")
            for wrong, error in ((7, TypeError), ("", ValueError), ("x" * 256, ValueError)):
                with pytest.raises(error, match="delay_id"):
                    await producer.send("x", deliver_after_s=1, delay_id=wrong)  # type: ignore[arg-type]
            (await client.link()).welcome["capabilities"].remove("delay_names")  # as an older gateway
            with pytest.raises(ClientError, match="this gateway knows no names"):
                await producer.send("x", deliver_after_s=1, delay_id="n")
            await producer.send("others go on")

    with open_client(gateway) as http:
        asyncio.run(replaced(http))


def test_a_confirmed_cancellation_survives_a_kill(tmp_path: Path) -> None:
    """The message with the latest time arrives; the two earlier ones, which were cancelled, do not."""
    listen = f"127.0.0.1:{free_port()}"
    settings = {**SERVED, "native.listen": listen}
    with Gateway(tmp_path, settings=settings) as gateway:

        async def native() -> None:
            async with penstock.connect(f"penstock://{listen}") as client, client.producer("t") as producer:
                never = await producer.send("never", deliver_after_s=20)
                await producer.send("last", deliver_after_s=22)
                assert await client.cancel("t", never)

        with open_client(gateway) as http:
            http.put("streams/t")
            message = {"value": "never", "delay_ms": 20_000, "delay_id": "a"}
            assert http.post("streams/t/messages", json=message).status_code == 200
            asyncio.run(native())
            assert http.delete("exchanges/amq.default/delayed/a").status_code == 204
            gateway.kill9()
        gateway.start()
        assert waiting(gateway) <= 1
        with open_client(gateway) as http:
            found: list[str] = []
            while not found:
                answer = http.get("streams/t/messages?from=first&wait_ms=30000")
                found = [one["value"] for one in answer.json()["messages"]]
            assert found == ["last"]


def test_an_impossible_cancellation_is_refused(gateway: Gateway, unique: str) -> None:
    api = Api(gateway)
    assert api.status("PUT", f"users/{unique}", {"password": unique, "tags": ""}) in (201, 204)
    rights = {"configure": "", "write": "^other$", "read": ".*"}
    assert api.status("PUT", f"permissions/%2F/{unique}", rights) in (201, 204)
    api.close()
    http_schedules(gateway, unique)
    with open_client(gateway, unique) as other:
        assert other.delete(f"exchanges/amq.topic/delayed/{unique}").status_code == 403
    with open_client(gateway) as http:
        assert http.delete(f"exchanges/no.such/delayed/{unique}").status_code == 404

        def refused(message: dict[str, object]) -> httpx.Response:
            return http.post("exchanges/amq.topic/messages?routing_key=k", json={"value": "x", **message})

        for message in ({"delay_id": 7}, {"delay_id": ""}, {"headers": {"x-penstock-cancel": unique}}):
            answer = refused(message)
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_field")
    assert http_cancels(gateway, unique), "nothing of that cancelled it"


def test_those_that_wait_are_listed_and_cancelled_by_their_ids(gateway: Gateway, unique: str) -> None:
    api = Api(gateway)
    assert api.status("PUT", f"vhosts/{unique}") in (201, 204)
    assert api.status("PUT", f"users/{unique}", {"password": unique, "tags": ""}) in (201, 204)
    rights = {"configure": "", "write": "", "read": "^amq[.]topic$"}
    assert api.status("PUT", f"permissions/%2F/{unique}", rights) in (201, 204)
    with open_client(gateway) as http, open_client(gateway, unique) as reader:
        known = len(http.get("delayed").json()["messages"])

        def listed(client: httpx.Client, most: int = 500) -> list[dict[str, object]]:
            found, cursor = [], ""
            while True:
                answer = client.get(f"delayed?max={most}" + (f"&cursor={cursor}" if cursor else "")).json()
                found += answer["messages"]
                if not (cursor := answer.get("cursor", "")):
                    return found

        by_amqp(gateway, {"x-penstock-deliver-after": 3 * DAY_MS})
        mqtt_schedules(gateway, unique)
        message = {"value": "four", "delay_ms": 2 * DAY_MS}
        for path in ("exchanges/amq.topic/messages?routing_key=b", "queues/other/messages"):
            http.put("queues/other")
            assert http.post(path, json=message).status_code == 200
        elsewhere = str(http.base_url).replace("%2F", unique) + "exchanges/amq.topic/messages?routing_key=c"
        assert http.post(elsewhere, json=message).status_code == 200
        found = listed(http)
        assert found == listed(http, 1) and len(found) == known + 4
        assert sorted(found, key=lambda one: one["due_at"]) == found
        mqtt = next(one for one in found if one.get("topic") == TOPIC)
        assert (mqtt["size"], mqtt["routing_key"], mqtt["protocol"]) == (4, "later.t", "mqtt")
        keys = {one["routing_key"] for one in found}
        assert {"later.t", "b", "other"} <= keys and "c" not in keys
        seen = listed(reader)
        assert {one["routing_key"] for one in seen} == keys - {"other"}
        assert not any(one["may_cancel"] for one in seen) and all(one["may_cancel"] for one in found)
        for one in found:
            assert reader.delete(f"delayed/{one['id']}").status_code == 404
            assert http.delete(f"delayed/{one['id']}").status_code == 204
            assert http.delete(f"delayed/{one['id']}").status_code == 404
        assert listed(http) == []
        for wrong in ("max=0", "max=501", "max=x", "cursor=x"):
            assert http.get(f"delayed?{wrong}").status_code == 400
        assert http.delete("delayed/x").status_code == 404
        assert (
            reader.get(elsewhere.replace("exchanges/amq.topic/messages?routing_key=c", "delayed")).status_code
            == 403
        )
    assert api.status("DELETE", f"vhosts/{unique}") == 204
    assert api.status("DELETE", f"users/{unique}") == 204
    api.close()
