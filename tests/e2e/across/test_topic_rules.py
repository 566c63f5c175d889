"""A rule about a topic holds for the topic, by whichever protocol and way it is reached.

Anna and Otto may use every exchange and queue; of the topics of MQTT Anna has those below `plant`, Otto those
below `other`. Once the rules are those of `mqtt.acl_file`, once topic permissions of `amq.topic`.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pika
import pytest
from paho.mqtt.client import Client, MQTTMessageInfo
from paho.mqtt.enums import CallbackAPIVersion
from pika.exceptions import ChannelClosedByBroker
from websockets.sync.client import connect

import penstock
from penstock.sdk.errors import ClientError
from tests.support.brokers import Gateway, free_port
from tests.support.data_plane import SERVED, open_client
from tests.support.limits import LIMIT_S
from tests.support.management import Api

pytestmark = [pytest.mark.penstock_only("most of these ways are penstock's alone")]

ACL = """
user anna
topic plant/#
user otto
topic other/#
user guest
topic #
"""
USERS = {"anna": "plant", "otto": "other"}
numbers = itertools.count(1)


@pytest.fixture(scope="module", params=["acl_file", "topic permissions"])
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("rules")
    by_file = request.param == "acl_file"
    settings = {**SERVED, "native.listen": f"127.0.0.1:{free_port()}"}
    settings["webhooks.allow_networks"] = "127.0.0.0/8"
    if by_file:
        (folder / "acl").write_text(ACL)
        settings["mqtt.acl_file"] = str(folder / "acl")
    with Gateway(folder, settings=settings) as running:
        api = Api(running)
        for user, own in USERS.items():
            assert api.status("PUT", f"users/{user}", {"password": user, "tags": "management"}) == 201
            everything = {"configure": ".*", "write": ".*", "read": ".*"}
            assert api.status("PUT", f"permissions/%2F/{user}", everything) == 201
            if not by_file:
                topics = {"exchange": "amq.topic", "write": rf"^{own}\.", "read": rf"^{own}\."}
                assert api.status("PUT", f"topic-permissions/%2F/{user}", topics) == 201
        api.close()
        yield running


# Each way: whether the user may. "read" is about all below `plant`, "write" about `plant/x`.


def mqtt(gateway: Gateway, user: str, use: Callable[[Client, list[Any]], None]) -> int:
    """The reason code of the first answer."""
    codes: list[Any] = []
    client = Client(CallbackAPIVersion.VERSION2, f"{user}-{next(numbers)}", protocol=5)  # type: ignore[arg-type]
    client.username_pw_set(user, user)
    client.on_connect = lambda c, _u, _f, reason, _p: codes.append(reason) if reason.value else use(c, codes)
    client.on_subscribe = lambda _c, _u, _m, reasons, _p: codes.extend(reasons)
    client.on_publish = lambda _c, _u, _m, reason, _p: codes.append(reason)
    client.connect("127.0.0.1", gateway.mqtt_port)
    while not codes:
        assert client.loop(LIMIT_S) == 0 or codes
    client.disconnect()
    return int(codes[0].value)


def subscribes(topic_filter: str) -> Callable[[Gateway, str], bool]:
    return lambda gateway, user: (
        mqtt(gateway, user, lambda client, _: client.subscribe(topic_filter, 1) and None) < 0x80
    )


def mqtt_publish(gateway: Gateway, user: str) -> bool:
    def publish(client: Client, _: list[Any]) -> None:
        sent: MQTTMessageInfo = client.publish("plant/x", b"x", 1)
        assert sent.rc == 0

    return mqtt(gateway, user, publish) < 0x80


def amqp(use: Callable[[Any, str], None]) -> Callable[[Gateway, str], bool]:
    def way(gateway: Gateway, user: str) -> bool:
        login = pika.PlainCredentials(user, user)
        parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, "/", login)
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            try:
                use(channel, f"{user}-{next(numbers)}")
            except ChannelClosedByBroker as closed:
                assert closed.reply_code == 403, closed
                return False
            return True

    return way


def binds(key: str, **arguments: str) -> Callable[[Gateway, str], bool]:
    def use(channel: Any, name: str) -> None:
        channel.queue_declare(name, exclusive=True)
        channel.queue_bind(name, "amq.topic", key, arguments)

    return amqp(use)


def binds_an_exchange(channel: Any, name: str) -> None:
    channel.exchange_declare(name, "fanout", auto_delete=True)
    channel.exchange_bind(name, "amq.topic", "plant.#")


def publishes(key: str, **properties: Any) -> Callable[[Gateway, str], bool]:
    def use(channel: Any, _: str) -> None:
        channel.basic_publish("amq.topic", key, b"x", pika.BasicProperties(**properties))

    return amqp(use)


def own_key(user: str) -> str:
    return f"{USERS[user]}.mine"


def publishes_a_copy(header: str) -> Callable[[Gateway, str], bool]:
    return lambda gateway, user: publishes(own_key(user), headers={header: ["plant.x"]})(gateway, user)


def commits(channel: Any, name: str) -> None:
    other = channel.connection.channel()
    other.tx_select()
    other.basic_publish("amq.topic", "plant.x", b"x")
    other.tx_commit()


def leads(type_: str, key: str) -> Callable[[Gateway, str], bool]:
    """To the exchange of topics, from one where everybody may publish by any key."""

    def use(channel: Any, name: str) -> None:
        channel.exchange_declare(name, type_, auto_delete=True)
        channel.exchange_bind("amq.topic", name, key)

    return amqp(use)


def leads_by_alternate(channel: Any, name: str) -> None:
    arguments = {"alternate-exchange": "amq.topic"}
    channel.exchange_declare(name, "direct", auto_delete=True, arguments=arguments)
    channel.exchange_delete(name)


def leads_by_death(channel: Any, name: str) -> None:
    letters = {"x-dead-letter-exchange": "amq.topic", "x-dead-letter-routing-key": "plant.x"}
    channel.queue_declare(name, exclusive=True, arguments=letters)


def http(
    method: str, path: str, body: object = None, refused: tuple[int, ...] = (403,)
) -> Callable[[Gateway, str], bool]:
    def way(gateway: Gateway, user: str) -> bool:
        with open_client(gateway, user) as client:
            named = path.replace("NAME", f"{user}-{next(numbers)}")
            with client.stream(method, named, json=body) as answer:
                if answer.status_code in refused:
                    return False
                assert answer.status_code < 300, (answer.status_code, answer.read())
                return True

    return way


def stages(gateway: Gateway, user: str) -> bool:
    with open_client(gateway, user) as client:
        transaction = client.post("transactions", json={}).json()["id"]
        path = f"exchanges/amq.topic/messages?routing_key=plant.x&transaction={transaction}"
        answer = client.post(path, json={"value": "x"})
        assert answer.status_code in (200, 201, 202, 403), answer.text
        return answer.status_code != 403


def asks_socket(fields: dict[str, object]) -> Callable[[Gateway, str], bool]:
    def way(gateway: Gateway, user: str) -> bool:
        login = base64.b64encode(f"{user}:{user}".encode()).decode()
        address = f"ws://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/ws"
        with connect(
            address,
            additional_headers={"authorization": f"Basic {login}"},
            subprotocols=["penstock.v1.json"],  # type: ignore[list-item]
            open_timeout=LIMIT_S,
            close_timeout=LIMIT_S,
        ) as socket:
            socket.send(json.dumps(fields))
            answer = json.loads(socket.recv(timeout=LIMIT_S))
        if answer["type"] == "error":
            assert answer["code"] == "access_refused", answer
        return bool(answer["type"] != "error")

    return way


def manages(method: str, path: str, body: object) -> Callable[[Gateway, str], bool]:
    def way(gateway: Gateway, user: str) -> bool:
        api = Api(gateway, user, user)
        name = f"{user}-{next(numbers)}"
        if "NAME" in path:
            assert api.status("PUT", f"queues/%2F/{name}", {"auto_delete": True, "durable": False}) == 201
        answer = api.send(method, path.replace("NAME", name), body)
        if "NAME" in path:
            assert api.status("DELETE", f"queues/%2F/{name}") == 204
        api.close()
        assert answer.status_code < 300 or "refused" in answer.text, answer.text
        return answer.status_code < 300

    return way


def native(use: Callable[[penstock.Client, str], Awaitable[object]]) -> Callable[[Gateway, str], bool]:
    def way(gateway: Gateway, user: str) -> bool:
        async def scenario() -> bool:
            url = f"penstock://{user}:{user}@{gateway.settings['native.listen']}"
            async with penstock.connect(url) as client:
                try:
                    async with asyncio.timeout(LIMIT_S):
                        await use(client, f"{user}-{next(numbers)}")
                except ClientError as error:
                    assert error.code == "access_refused", error
                    return False
                return True

        return asyncio.run(scenario())

    return way


async def sends(client: penstock.Client, place: dict[str, Any]) -> None:
    async with client.producer(**place) as producer:
        await producer.send("x")


async def sends_in_transaction(client: penstock.Client, _: str) -> None:
    async with client.producer(mqtt_topic="plant/x") as producer, client.transaction() as transaction:
        transaction.send("x", to=producer)


async def prepares(client: penstock.Client, name: str) -> None:
    group = penstock.Group(name, lambda _: None)
    async with client.producer(mqtt_topic="plant/x", group=group) as producer:
        await (await producer.prepare("x")).commit()


async def reads(client: penstock.Client, _: str) -> None:
    async with client.reader(mqtt_filter="plant/#"):
        pass


async def reads_the_past(client: penstock.Client, _: str) -> None:
    async with client.reader(mqtt_filter="plant/#", start="-1m"):
        pass


async def takes(client: penstock.Client, name: str) -> None:
    async with client.subscribe(mqtt_filter="plant/#", subscription=name, durable=False):
        pass


async def binds_a_topic(client: penstock.Client, name: str) -> None:
    await client.admin.create_topic(name)
    await client.call("bind", topic=name, exchange="amq.topic", routing_key="plant.#")


READS = {
    "mqtt": subscribes("plant/#"),
    "mqtt shared": subscribes("$share/group/plant/#"),
    "mqtt replay": subscribes("$replay/-1m/plant/#"),
    "amqp": binds("plant.#"),
    "amqp by a wildcard in front": lambda g, user: binds("*.x" if user == "otto" else "plant.x")(g, user),
    "amqp of the past": binds("plant.#", **{"x-penstock-backfill": "-1m"}),
    "amqp exchange": amqp(binds_an_exchange),
    "management": manages("POST", "bindings/%2F/e/amq.topic/q/NAME", {"routing_key": "plant.#"}),
    "native bind": native(binds_a_topic),
    "native reader": native(reads),
    "native reader of the past": native(reads_the_past),
    "native subscription": native(takes),
    "http tail of a filter": http("GET", "tail?topic=plant/%23"),
    "http tail of the exchange": http("GET", "exchanges/amq.topic/tail?pattern=plant.%23"),
    "http socket, filter": asks_socket({"do": "subscribe", "id": 1, "topic": "plant/#"}),
    "http socket, exchange": asks_socket(
        {"do": "subscribe", "id": 1, "exchange": "amq.topic", "pattern": "plant.#"}
    ),
    "webhook": http("PUT", "webhooks/NAME", {"source": {"topic": "plant/#"}, "url": "http://127.0.0.1:9/"}),
    "webhook of the exchange": http(
        "PUT",
        "webhooks/NAME",
        {"source": {"exchange": "amq.topic", "routing_key": "plant.#"}, "url": "http://127.0.0.1:9/"},
    ),
}
MESSAGE = {"value": "x"}
WRITES = {
    "mqtt": mqtt_publish,
    "amqp": publishes("plant.x"),
    "amqp delayed": publishes("plant.x", headers={"x-penstock-deliver-after": 60_000}),
    "amqp retained": publishes("plant.x", headers={"x-mqtt-retain": True}),
    "amqp copy": publishes_a_copy("CC"),
    "amqp blind copy": publishes_a_copy("BCC"),
    "amqp transaction": amqp(commits),
    "amqp fanout to the exchange": leads("fanout", ""),
    "amqp topic exchange to the exchange": leads("topic", "plant.#"),
    "amqp direct to the exchange": leads("direct", "plant.x"),
    "amqp alternate exchange": amqp(leads_by_alternate),
    "amqp dead letters": amqp(leads_by_death),
    "management": manages(
        "POST",
        "exchanges/%2F/amq.topic/publish",
        {"routing_key": "plant.x", "payload": "x", "payload_encoding": "string", "properties": {}},
    ),
    "native topic": native(lambda client, _: sends(client, {"mqtt_topic": "plant/x"})),
    "native exchange": native(
        lambda client, _: sends(client, {"exchange": "amq.topic", "routing_key": "plant.x"})
    ),
    "native transaction": native(sends_in_transaction),
    "native half": native(prepares),
    "http topic": http("POST", "mqtt/messages?topic=plant/x", MESSAGE),
    "http retained": http("POST", "mqtt/messages?topic=plant/x&retain=true", MESSAGE),
    "http exchange": http("POST", "exchanges/amq.topic/messages?routing_key=plant.x", MESSAGE),
    "http transaction": stages,
}
ANYTHING = {"amqp fanout to the exchange", "amqp alternate exchange"}
"""Of these nobody has the right whose rule is narrower than everything."""


@pytest.mark.parametrize("way", READS)
def test_a_topic_is_read_by_who_may_read_it(gateway: Gateway, way: str) -> None:
    assert {user: READS[way](gateway, user) for user in USERS} == {"anna": True, "otto": False}


@pytest.mark.parametrize("way", WRITES)
def test_a_topic_is_published_to_by_who_may(gateway: Gateway, way: str) -> None:
    allowed = {user: WRITES[way](gateway, user) for user in USERS}
    assert allowed == {"anna": way not in ANYTHING, "otto": False}


def test_a_wide_binding_needs_a_wide_rule(gateway: Gateway) -> None:
    """Under the file guest may read all; topic permissions it has none, and so all."""
    assert {user: binds("#")(gateway, user) for user in (*USERS, "guest")} == {
        "anna": False,
        "otto": False,
        "guest": True,
    }
    assert leads("fanout", "")(gateway, "guest")
