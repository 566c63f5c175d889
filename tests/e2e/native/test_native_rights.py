"""Users affect one another over the native protocol only as their permissions allow.

Alice may do everything in "/", Bob may publish to the exchange `his` and read what begins with `open`. Carol
may do everything in another vhost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pika
import pytest

import penstock
from penstock.sdk.errors import ClientError
from tests.support.brokers import Gateway, free_port
from tests.support.data_plane import SERVED
from tests.support.limits import LIMIT_S
from tests.support.management import Api

pytestmark = [pytest.mark.penstock_only("RabbitMQ and Mosquitto do not speak it")]

VHOST = {"alice": "/", "bob": "/", "carol": "other"}
RIGHTS = {
    "alice": {"configure": ".*", "write": ".*", "read": ".*"},
    "bob": {"configure": "^new", "write": "^his$", "read": "^open"},
    "carol": {"configure": ".*", "write": ".*", "read": ".*"},
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {**SERVED, "native.listen": f"127.0.0.1:{free_port()}"}
    with Gateway(tmp_path_factory.mktemp("rights"), settings=settings) as running:
        api = Api(running)
        assert api.status("PUT", "vhosts/other") == 201
        for user, vhost in VHOST.items():
            assert api.status("PUT", f"users/{user}", {"password": user, "tags": ""}) == 201
            place = f"{vhost.replace('/', '%2F')}/{user}"
            assert api.status("PUT", f"permissions/{place}", RIGHTS[user]) == 201
        assert api.status("PUT", "exchanges/%2F/his", {"type": "fanout", "durable": True}) == 201
        assert api.status("PUT", "queues/%2F/secret", {"durable": True}) == 201
        api.close()
        yield running


def native(gateway: Gateway, user: str) -> penstock.Client:
    vhost = "" if VHOST[user] == "/" else VHOST[user]
    return penstock.connect(f"penstock://{user}:{user}@{gateway.settings['native.listen']}/{vhost}")


async def refused(client: penstock.Client, do: str, **fields: Any) -> tuple[str, str]:
    """The code and the text of the refusal."""
    with pytest.raises(ClientError) as error:
        await client.call(do, **fields)
    return error.value.code, error.value.message


def test_a_producers_name_is_its_users(gateway: Gateway, unique: str) -> None:
    """A producer with another user's name neither fences that user's producer nor shares its numbering."""

    async def scenario() -> None:
        async with native(gateway, "alice") as hers, native(gateway, "bob") as his:
            async with hers.producer(unique, name=unique) as producer:
                await producer.send("1")
                await his.call("open_producer", handle=90, exchange="his", name=unique)
                epoch = (await hers.call("open_producer", handle=90, topic=unique, name=f"{unique}-2"))[
                    "epoch"
                ]
                assert await his.call("open_producer", handle=91, exchange="his", name=unique, epoch=epoch)
                await producer.send("2")
            async with hers.reader(unique, start="earliest") as reader:
                got = [await reader.receive(LIMIT_S) for _ in range(2)]
                assert [message and message.body for message in got] == [b"1", b"2"]

    asyncio.run(scenario())


def test_a_number_of_another_user_takes_nothing_from_an_amqp_producer(gateway: Gateway, unique: str) -> None:
    def publish(user: str, exchange: str, key: str, sequence: int) -> None:
        login = pika.PlainCredentials(user, user)
        with pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, "/", login)
        ) as connection:
            channel = connection.channel()
            if user == "alice":
                channel.queue_declare(unique, durable=True)
            channel.confirm_delivery()
            headers = {"x-penstock-producer": unique, "x-penstock-sequence": sequence}
            channel.basic_publish(exchange, key, b"%d" % sequence, pika.BasicProperties(headers=headers))
            if user == "alice":
                seen.append(channel.basic_get(unique, auto_ack=True)[2])

    seen: list[bytes] = []
    publish("alice", "", unique, 1)
    publish("bob", "his", "", 2**62)
    publish("alice", "", unique, 2)
    assert seen == [b"1", b"2"]


def test_dead_letters_go_where_the_user_may_publish(gateway: Gateway, unique: str) -> None:
    subscription = {"topic": f"open-{unique}", "subscription": "s", "handle": 90}

    async def scenario() -> None:
        async with native(gateway, "alice") as hers, native(gateway, "bob") as his:
            await hers.admin.create_topic(f"open-{unique}")
            told = [
                await refused(his, "subscribe", **subscription, max_deliveries=1, dead_letter=name)
                for name in ("secret", "none")
            ]
            assert {code for code, _ in told} == {"access_refused"}
            assert told[0] == told[1], "whether it is there is not told"
            option = {"max_deliveries": 1, "dead_letter": "secret"}
            await hers.call("subscribe", **subscription, **option)
            await his.call("subscribe", **subscription, **option)  # what is there may be joined
            subscription["subscription"] = "another"
            await his.call("subscribe", **{**subscription, "handle": 91})
            group = penstock.Group("g", lambda _: None, dead_letter="secret")
            async with his.producer(exchange="his", group=group) as producer:
                with pytest.raises(ClientError) as error:
                    await producer.prepare(b"x")
                assert error.value.code == "access_refused"

    asyncio.run(scenario())
    base = f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/"
    with httpx.Client(base_url=base, auth=("bob", "bob"), timeout=90) as http:
        half = {"exchange": "his", "message": {"value": "x"}, "dead_letter": "secret"}
        answer = http.post("half", json=half)
        assert (answer.status_code, answer.json()["code"]) == (403, "access_refused")
        del half["dead_letter"]
        assert http.post("half", json=half).status_code == 201
        option = {"max_deliveries": 1, "dead_letter": "secret"}
        answer = http.put(f"streams/open-{unique}/subscriptions/other", json=option)
        assert (answer.status_code, answer.json()["code"]) == (403, "access_refused")


def test_a_subscription_without_read_permission_creates_no_topic(gateway: Gateway, unique: str) -> None:
    async def scenario() -> None:
        topic = f"new-{unique}"
        async with native(gateway, "alice") as hers, native(gateway, "bob") as his:
            code, _ = await refused(his, "subscribe", handle=90, topic=topic, subscription="s", create=True)
            assert code == "access_refused"
            assert topic not in await hers.admin.topics()
            await his.call("create_topic", topic=topic)  # which he may

    asyncio.run(scenario())


def test_refusals_do_not_tell_what_there_is(gateway: Gateway, unique: str) -> None:
    async def scenario() -> None:
        async with native(gateway, "alice") as hers, native(gateway, "bob") as his:
            await hers.admin.create_topic(unique)
            there = {"topic": unique, "queue": "secret"}
            for do, kind, fields in (
                ("open_producer", "topic", {"handle": 90}),
                ("open_producer", "topic", {"handle": 90, "create": True}),
                ("subscribe", "topic", {"handle": 90, "subscription": "s"}),
                ("subscribe", "topic", {"handle": 90, "subscription": "s", "create": True}),
                ("subscribe", "queue", {"handle": 90}),
                ("read", "topic", {"handle": 90}),
                ("read", "queue", {"handle": 90}),
                ("describe", "topic", {}),
                ("seek", "topic", {"subscription": "s", "to": "latest"}),
                ("pause", "topic", {"subscription": "s"}),
                ("delete_subscription", "topic", {"subscription": "s"}),
                ("delete_topic", "topic", {}),
            ):
                other = "queue" if kind == "topic" else "topic"
                told = [
                    await refused(his, do, **{kind: name}, **fields)
                    for name in (there[kind], there[other], "none")
                ]
                assert {code for code, _ in told} == {"access_refused"}, (do, told)
                texts = {
                    text.replace(name, "NAME")
                    for (_, text), name in zip(told, (there[kind], there[other], "none"), strict=True)
                }
                assert len(texts) == 1, (do, texts)

    asyncio.run(scenario())


def test_a_half_message_is_decided_by_its_user_in_its_vhost(gateway: Gateway, unique: str) -> None:
    async def scenario() -> None:
        async with native(gateway, "alice") as hers:
            async with hers.producer(unique, group=penstock.Group("g", lambda _: None)) as producer:
                half = await producer.prepare(b"x")
                for user in ("bob", "carol"):
                    async with native(gateway, user) as client:
                        for commit in (True, False):
                            code, text = await refused(
                                client, "decide", transaction=half.transaction, commit=commit
                            )
                            assert code == "half_unknown"
                            _, none = await refused(client, "decide", transaction=2**60, commit=commit)
                            assert text.replace(str(half.transaction), "N") == none.replace(str(2**60), "N")
                await half.commit()

    asyncio.run(scenario())


def test_subscriptions_count_as_queues_of_their_vhost(gateway: Gateway, unique: str) -> None:
    async def scenario() -> None:
        async with native(gateway, "carol") as client:
            await client.admin.create_topic(unique)
            await client.call("subscribe", handle=90, topic=unique, subscription="a")
            api = Api(gateway)
            assert api.status("PUT", "vhost-limits/other/max-queues", {"value": 2}) == 204
            code, _ = await refused(client, "subscribe", handle=91, topic=unique, subscription="b")
            assert code == "limit_reached"
            await client.call("subscribe", handle=92, topic=unique, subscription="a")
            assert api.status("DELETE", "vhost-limits/other/max-queues") == 204
            api.close()
            await client.call("subscribe", handle=91, topic=unique, subscription="b")

    asyncio.run(scenario())
