"""Only a user who may publish a delayed message may cancel it, by any protocol. Others learn nothing.

Alice and Bob share the vhost "/"; each has topics of their own in amq.topic, and Alice an exchange. Carol is
alone in another vhost. All three may publish to streams and queues of their vhost.
"""

from __future__ import annotations

import asyncio
import json
import queue
from collections.abc import Callable, Iterator

import httpx
import paho.mqtt.client as mqtt
import pika
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import penstock
from penstock.sdk.errors import Refused
from penstock.sdk.message import MessageId
from tests.support.brokers import Gateway, free_port
from tests.support.data_plane import SERVED
from tests.support.limits import LIMIT_S
from tests.support.management import Api

pytestmark = [pytest.mark.penstock_only("RabbitMQ and Mosquitto have no such thing")]

DAY_MS = 86_400_000
VHOST = {"alice": "/", "bob": "/", "carol": "other"}
MINE = {"alice": "a", "bob": "b", "carol": "a"}
"""The first level of the topics that each may write to."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {**SERVED, "native.listen": f"127.0.0.1:{free_port()}"}
    with Gateway(tmp_path_factory.mktemp("rights"), settings=settings) as running:
        api = Api(running)
        write = {"alice": ".*", "bob": "^amq\\.(default|topic)$", "carol": ".*"}
        assert api.status("PUT", "vhosts/other") == 201
        for user, vhost in VHOST.items():
            assert api.status("PUT", f"users/{user}", {"password": user, "tags": ""}) == 201
            rights = {"configure": ".*", "write": write[user], "read": ".*"}
            place = f"{vhost.replace('/', '%2F')}/{user}"
            assert api.status("PUT", f"permissions/{place}", rights) == 201
            topics = {"exchange": "amq.topic", "write": rf"^{MINE[user]}\.", "read": ".*"}
            assert api.status("PUT", f"topic-permissions/{place}", topics) == 201
        for vhost in ("%2F", "other"):
            assert api.status("PUT", f"exchanges/{vhost}/private", {"type": "direct", "durable": True}) == 201
        api.close()
        yield running


def waiting(gateway: Gateway) -> int:
    """How many messages wait for their time."""
    api = Api(gateway)
    found = int(api.get("overview")["penstock"]["delayed"])
    api.close()
    return found


def native(gateway: Gateway, user: str) -> penstock.Client:
    vhost = "" if VHOST[user] == "/" else VHOST[user]
    return penstock.connect(f"penstock://{user}:{user}@{gateway.settings['native.listen']}/{vhost}")


# By name


def by_amqp(gateway: Gateway, user: str, headers: dict[str, object], *, mandatory: bool = False) -> None:
    login = pika.PlainCredentials(user, user)
    parameters = pika.ConnectionParameters(
        "127.0.0.1", gateway.amqp_port, VHOST[user], login, blocked_connection_timeout=90
    )
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(headers=headers, delivery_mode=2)
        channel.basic_publish("amq.topic", f"{MINE[user]}.x", b"amqp", properties, mandatory=mandatory)


def amqp_schedules(gateway: Gateway, user: str, name: str) -> None:
    by_amqp(gateway, user, {"x-penstock-deliver-after": DAY_MS, "x-penstock-delay-id": name})


def amqp_cancels(gateway: Gateway, user: str, name: str) -> bool:
    try:
        by_amqp(gateway, user, {"x-penstock-cancel": name}, mandatory=True)
    except pika.exceptions.UnroutableError:
        return False
    return True


def by_mqtt(gateway: Gateway, user: str, *user_properties: tuple[str, str]) -> int:
    """The reason of its PUBACK."""
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = list(user_properties)
    connected: queue.Queue[int] = queue.Queue()
    answered: queue.Queue[int] = queue.Queue()
    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5, reconnect_on_failure=False)
    client.username_pw_set(f"{VHOST[user]}:{user}", user)
    client.on_connect = lambda _, __, ___, reason, ____: connected.put(reason.value)
    client.on_publish = lambda _, __, ___, reason, ____: answered.put(reason.value)
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.loop_start()
    assert connected.get(timeout=LIMIT_S) == 0
    client.publish(f"{MINE[user]}/x", b"mqtt", 1, properties=properties)
    reason = answered.get(timeout=LIMIT_S)
    client.disconnect()
    client.loop_stop()
    client._reset_sockets()
    return reason


def mqtt_schedules(gateway: Gateway, user: str, name: str) -> None:
    assert by_mqtt(gateway, user, ("penstock-deliver-after", str(DAY_MS)), ("penstock-delay-id", name)) == 0


def mqtt_cancels(gateway: Gateway, user: str, name: str) -> bool:
    reason = by_mqtt(gateway, user, ("penstock-cancel", name))
    assert reason in (0, 0x10)
    return reason == 0


def http(gateway: Gateway, user: str) -> httpx.Client:
    vhost = VHOST[user].replace("/", "%2F")
    base = f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/{vhost}/"
    return httpx.Client(base_url=base, auth=(user, user), timeout=90)


def http_schedules(gateway: Gateway, user: str, name: str) -> None:
    with http(gateway, user) as client:
        message = {"value": "x", "delay_ms": DAY_MS, "delay_id": name}
        answer = client.post(f"exchanges/amq.topic/messages?routing_key={MINE[user]}.x", json=message)
        assert answer.status_code == 200, answer.text


def http_schedules_to_a_topic(gateway: Gateway, user: str, name: str) -> None:
    with http(gateway, user) as client:
        headers = {"content-type": "text/plain", "penstock-delay-ms": str(DAY_MS), "penstock-delay-id": name}
        answer = client.post(f"mqtt/messages?topic={MINE[user]}/x", content=b"x", headers=headers)
        assert answer.status_code == 200, answer.text


def http_cancels(gateway: Gateway, user: str, name: str) -> bool:
    with http(gateway, user) as client:
        answer = client.delete(f"exchanges/amq.topic/delayed/{name}")
    assert answer.status_code in (204, 404)
    if answer.status_code == 404:
        assert json.loads(answer.text)["code"] == "not_found"
    return answer.status_code == 204


SCHEDULES = [amqp_schedules, mqtt_schedules, http_schedules, http_schedules_to_a_topic]
CANCELS = [amqp_cancels, mqtt_cancels, http_cancels]

Schedules = Callable[[Gateway, str, str], None]
Cancels = Callable[[Gateway, str, str], bool]


@pytest.mark.parametrize("cancels", CANCELS)
def test_by_name_only_what_one_may_publish_is_cancelled(
    gateway: Gateway, cancels: Cancels, unique: str
) -> None:
    before = waiting(gateway)
    for schedules in SCHEDULES:
        schedules(gateway, "alice", f"{unique}-{schedules.__name__}")
    for left, schedules in zip((3, 2, 1, 0), SCHEDULES, strict=True):
        name = f"{unique}-{schedules.__name__}"
        assert not cancels(gateway, "bob", name), "her topic is not his"
        assert not cancels(gateway, "carol", name), "another vhost"
        assert waiting(gateway) == before + left + 1
        assert cancels(gateway, "alice", name)
        assert waiting(gateway) == before + left


@pytest.mark.parametrize("schedules", SCHEDULES)
def test_a_name_given_by_another_one_replaces_nothing_of_hers(
    gateway: Gateway, schedules: Schedules, unique: str
) -> None:
    before = waiting(gateway)
    for user in ("alice", "bob", "carol", "alice", "bob", "carol"):
        schedules(gateway, user, unique)
    assert waiting(gateway) == before + 3, "each replaced what they had given themselves"
    for left, user in ((2, "bob"), (1, "alice"), (0, "carol")):
        assert http_cancels(gateway, user, unique)
        assert not http_cancels(gateway, user, unique)
        assert waiting(gateway) == before + left


# By position


def test_by_position_only_what_was_published_there_is_cancelled(gateway: Gateway, unique: str) -> None:
    """A position can be guessed; so Bob and Carol know those of Alice here."""

    async def cancels(user: str, id: MessageId, **where: str) -> bool:
        async with native(gateway, user) as client:
            return await client.cancel(where.pop("topic", None), id, **where)

    async def scenario() -> None:
        topic = f"{unique}-t"
        async with native(gateway, "alice") as client:
            async with client.producer(exchange="private", routing_key="k") as producer:
                hers = await producer.send("hers", deliver_after_s=DAY_MS / 1000)
            async with client.producer(topic) as producer:
                at_topic = await producer.send("also", deliver_after_s=DAY_MS / 1000)
        assert waiting(gateway) == before + 2
        for user in ("bob", "carol"):
            for id in (hers, at_topic):
                assert not await cancels(user, id, topic="anything")
        with pytest.raises(Refused) as refused:
            await cancels("bob", hers, exchange="private", routing_key="k")
        assert refused.value.code == "access_refused"
        nothing = MessageId(hers.position + 10**6, hers.due_ms)
        with pytest.raises(Refused) as same:
            await cancels("bob", nothing, exchange="private", routing_key="k")
        assert same.value.message == refused.value.message, "whether it is there is not told"
        assert not await cancels("carol", hers, exchange="private", routing_key="k"), "her own exchange"
        assert not await cancels("carol", at_topic, topic=topic), "a topic of that name of her own vhost"
        assert not await cancels("alice", hers, exchange="private", routing_key="another")
        assert waiting(gateway) == before + 2
        assert await cancels("alice", hers, exchange="private", routing_key="k")
        assert await cancels("bob", at_topic, topic=topic), "he may publish to topics here"
        assert not await cancels("alice", at_topic, topic=topic), "it is cancelled"
        assert waiting(gateway) == before

    before = waiting(gateway)
    asyncio.run(scenario())
