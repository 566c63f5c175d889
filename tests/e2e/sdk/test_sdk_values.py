"""Values of the user's types through the SDK, their static types, and traces."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, assert_type

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

import penstock
import penstock.sync
from penstock.testing import Gateway

WAIT_S = 60.0


@dataclasses.dataclass
class Order:
    item: str
    user: str = "ann"


class Upper:
    """A codec of the user's own."""

    content_type = "text/upper"

    def encode(self, value: str) -> bytes:
        return value.upper().encode()

    def decode(self, body: bytes) -> str:
        return body.decode()


async def test_values_are_sent_and_come_back(client: penstock.Client) -> None:
    async with (
        client.producer("orders", schema=Order, key=lambda order: order.user) as producer,
        client.subscribe("orders", "s", schema=Order, start="earliest") as consumer,
    ):
        await producer.send(Order("apple"))
        await producer.send(Order("pear"), key="own", content_type="application/x-order")
        await producer.send_many([Order("plum"), Order("fig")])
        async with client.transaction() as tx:
            tx.send(Order("kiwi", "bob"), to=producer)
        found: list[penstock.Message[Order]] = []
        while len(found) < 5:
            found += await consumer.receive_many(5, WAIT_S)
        assert [one.value.item for one in found] == ["apple", "pear", "plum", "fig", "kiwi"]
        assert [one.key for one in found] == ["ann", "own", None, None, "bob"]
        assert {one.properties["content_type"] for one in found} == {
            "application/json",
            "application/x-order",
        }
        assert found[0].value is found[0].value, "decoded once"


async def test_a_codec_of_one_s_own(client: penstock.Client) -> None:
    async with (
        client.producer("t", schema=Upper()) as producer,
        client.retrying("t", "s", schema=Upper(), start="earliest") as consumer,
    ):
        await producer.send("loud")
        message = await consumer.receive(WAIT_S)
        assert message is not None
        assert (message.value, message.properties["content_type"]) == ("LOUD", "text/upper")


async def test_a_bad_body_raises_where_its_value_is_asked_for(client: penstock.Client) -> None:
    async with (
        client.producer("t") as raw,
        client.subscribe("t", "s", schema=Order, start="earliest") as consumer,
    ):
        await raw.send_many([b"no order", b'{"item": "apple"}'])
        bodies = []
        async for message in consumer:
            try:
                bodies.append(message.value.item)
                break
            except penstock.BadBody:
                await consumer.reject(message)
        assert bodies == ["apple"]


@pytest.mark.parametrize("body", [5, None, ["a"], {"a": 1}, 1.5])
async def test_a_body_of_another_type_is_refused_here(client: penstock.Client, body: Any) -> None:
    async with (
        client.producer("t") as producer,
        client.producer("t", schema=Order) as orders,
    ):
        for send in (producer.send, orders.send):
            with pytest.raises(TypeError, match=type(body).__name__):
                await send(body)
        with pytest.raises(TypeError, match=type(body).__name__):
            producer.send_nowait(body)
        with pytest.raises(TypeError, match=type(body).__name__):
            await producer.send_many([b"good", body])
        with pytest.raises(TypeError, match=type(body).__name__):
            async with producer.transaction() as tx:
                tx.send(body)
    assert (await client.admin.describe("t"))["messages"] == 0


if TYPE_CHECKING:

    async def what_the_type_checker_knows(client: penstock.Client, sync: penstock.sync.Client) -> None:
        assert_type(client.subscribe("t", "s"), penstock.Consumer[bytes])
        assert_type(client.subscribe("t", "s", schema=Order), penstock.Consumer[Order])
        assert_type(client.reader("t", schema=Upper()), penstock.Consumer[str])
        assert_type(client.producer("t"), penstock.Producer[bytes | str])
        assert_type(client.producer("t", schema=Order), penstock.Producer[Order])
        assert_type(client.table("t", schema=Order)["a"], Order)
        assert_type(await penstock.connect("penstock://h", user="u", token="t"), penstock.Client)
        async for message in client.subscribe("t", "s", schema=Order):
            assert_type(message, penstock.Message[Order])
            assert_type(message.value, Order)
            async with message.process() as same:
                assert_type(same.value, Order)
        for batch in sync.subscribe("t", "s", schema=Order).batches():
            assert_type(batch[0].value, Order)
        assert_type(sync.producer("t", schema=Order).send(Order("a")), penstock.MessageId)
        assert_type(sync.table("t", schema=Order)["a"], Order)
        assert_type((await client.admin.describe("t"))["subscriptions"]["s"]["lag"], int)
        assert_type(sync.admin.describe_queue("q")["ready"], int)
        await client.producer("t", schema=Order).send("no order")  # type: ignore[arg-type]
        await client.producer("t").send(5)  # type: ignore[arg-type]
        client.subscribe("t", "s", kind="keyshared")  # type: ignore[arg-type]


# Traces


def spans() -> tuple[InMemorySpanExporter, penstock.OpenTelemetry]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter, penstock.OpenTelemetry(provider)


async def test_the_handling_is_a_child_of_the_sending(gateway: Gateway) -> None:
    exporter, tracing = spans()
    async with (
        penstock.connect(gateway.url, tracing=tracing) as client,
        client.producer("t") as producer,
        client.subscribe("t", "s", start="earliest", nack_backoff_s=(0.0, 0.0)) as consumer,
    ):
        await producer.send("1", headers={"a": 1})
        message = await consumer.receive(WAIT_S)
        assert message is not None and message.headers["a"] == 1
        with pytest.raises(KeyError):
            async with message.process():
                raise KeyError
        await producer.send_nowait("2")

        async def handle(message: penstock.Message) -> None:
            consumer.stop()

        await consumer.workers(1, handle)
    sent, failed, *_ = found = exporter.get_finished_spans()
    assert [one.name for one in found[:3]] == [
        "send topic 't'",
        "process subscription 's' of topic 't'",
        "send topic 't'",
    ]
    assert (sent.kind, failed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert failed.parent is not None and failed.parent.span_id == sent.context.span_id
    assert failed.context.trace_id == sent.context.trace_id
    assert message.trace["traceparent"].split("-")[1] == f"{sent.context.trace_id:032x}"
    assert not failed.status.is_ok and sent.status.is_ok
    assert sent.attributes is not None and sent.attributes["messaging.system"] == "penstock"


def test_the_sync_face_is_traced_too(gateway: Gateway) -> None:
    exporter, tracing = spans()
    with penstock.sync.connect(gateway.url, tracing=tracing) as client:
        with client.producer("t") as producer, client.producer("u") as other:
            with producer.transaction() as tx:
                tx.send("1")
            other.send_many([b"x"])
        with client.subscribe("t", "s", start="earliest") as consumer:
            message = consumer.receive(WAIT_S)
            assert message is not None
            with consumer.process(message):
                pass
        with client.reader("u", start="earliest") as reader:
            untraced = reader.receive(WAIT_S)
            assert untraced is not None and untraced.trace == {}
    sent, handled = exporter.get_finished_spans()
    assert handled.parent is not None and handled.parent.span_id == sent.context.span_id
