"""One stream of messages for an AMQP queue, a group of MQTT clients and an SDK subscription, all at once."""

from __future__ import annotations

import asyncio

import aio_pika
import aiomqtt

import penstock
from penstock.testing import Gateway

WAIT_S = 120.0
N = 300
WANTED = sorted(b"%d" % i for i in range(3 * N))


async def test_each_gets_all_of_it_and_its_members_share(gateway: Gateway, client: penstock.Client) -> None:
    """Two consumers each share a queue, a $share group and a subscription; all three protocols publish."""
    await client.admin.create_topic("all")
    await client.admin.bind("all", "amq.topic", "plant.#")
    got: dict[str, list[bytes]] = {"amqp": [], "mqtt": [], "sdk": []}
    done = asyncio.Event()

    def add(who: str, body: bytes) -> None:
        got[who].append(body)
        if all(len(bodies) >= 3 * N for bodies in got.values()):
            done.set()

    connection = await aio_pika.connect(gateway.amqp_url)
    async with connection, connection.channel() as channel, asyncio.TaskGroup() as group:
        queue = await channel.declare_queue("jobs", durable=True)
        await queue.bind("amq.topic", "plant.#")

        async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            add("amqp", message.body)
            await message.ack()

        for _ in range(2):
            await queue.consume(take)
        subscribed = asyncio.Barrier(5)

        async def listen() -> None:
            async with aiomqtt.Client("127.0.0.1", gateway.mqtt_port, timeout=WAIT_S) as mqtt:
                await mqtt.subscribe("$share/group/plant/#", qos=1)
                await subscribed.wait()
                async for message in mqtt.messages:
                    assert isinstance(message.payload, bytes)
                    add("mqtt", message.payload)

        async def consume() -> None:
            async with client.subscribe("all", "s", start="earliest") as consumer:
                await subscribed.wait()
                async for message in consumer:
                    add("sdk", message.body)
                    await consumer.ack(message)

        readers = [group.create_task(work()) for work in (listen, listen, consume, consume)]
        await asyncio.wait_for(subscribed.wait(), WAIT_S)

        async def by_mqtt() -> None:
            async with aiomqtt.Client("127.0.0.1", gateway.mqtt_port, timeout=WAIT_S) as mqtt:
                for i in range(N):
                    await mqtt.publish("plant/mqtt", b"%d" % i, qos=1)

        async def by_amqp() -> None:
            exchange = await channel.get_exchange("amq.topic")
            for i in range(N, 2 * N):
                await exchange.publish(aio_pika.Message(b"%d" % i, delivery_mode=2), "plant.amqp")

        async def by_sdk() -> None:
            async with client.producer(exchange="amq.topic", routing_key="plant.sdk") as producer:
                await producer.send_many([b"%d" % i for i in range(2 * N, 3 * N)])

        await asyncio.gather(by_mqtt(), by_amqp(), by_sdk())
        await asyncio.wait_for(done.wait(), WAIT_S)
        for reader in readers:
            reader.cancel()
    assert {who: sorted(bodies) for who, bodies in got.items()} == {who: WANTED for who in got}
