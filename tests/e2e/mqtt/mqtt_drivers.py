"""One face over the asyncio MQTT libraries, as thin as it can be: their clients are used unmodified.

A driver connects once. `next` gives what came to the application; `drop` takes the network away.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiomqtt
import gmqtt
from amqtt.client import MQTTClient
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.support.limits import LIMIT_S

KEPT_S = 600
"""Session expiry of 5.0 sessions that are not clean."""

USER, TYPE, REPLY, DATA = "user properties", "content type", "response topic", "correlation data"


_PAHO = {USER: "UserProperty", TYPE: "ContentType", REPLY: "ResponseTopic", DATA: "CorrelationData"}
_GMQTT = {USER: "user_property", TYPE: "content_type", REPLY: "response_topic", DATA: "correlation_data"}


@dataclass
class Message:
    """A received message."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    props: dict[str, Any] = field(default_factory=dict)


@dataclass
class Options:
    """How to connect."""

    port: int
    client_id: str
    version: int
    clean: bool = True
    will: tuple[str, bytes, int, bool] | None = None


class Driver(Protocol):
    """A client of some library."""

    async def connect(self, options: Options) -> None: ...
    async def subscribe(self, topic: str, qos: int) -> None: ...
    async def publish(
        self, topic: str, payload: bytes, qos: int, retain: bool = False, props: dict[str, Any] | None = None
    ) -> None: ...
    async def next(self) -> Message: ...
    async def close(self) -> None: ...
    async def drop(self) -> None: ...


class Aiomqtt:
    """aiomqtt, which is paho underneath."""

    versions = (4, 5)

    async def connect(self, options: Options) -> None:
        arguments: dict[str, Any] = {"clean_session": options.clean}
        if options.version == 5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 0 if options.clean else KEPT_S
            arguments = {"clean_start": options.clean, "properties": properties}
        self._client = aiomqtt.Client(
            "127.0.0.1",
            options.port,
            timeout=LIMIT_S,
            identifier=options.client_id,
            protocol=aiomqtt.ProtocolVersion.V5 if options.version == 5 else aiomqtt.ProtocolVersion.V311,
            will=aiomqtt.Will(*options.will) if options.will else None,
            **arguments,
        )
        await self._client.__aenter__()
        self._messages = aiter(self._client.messages)

    async def subscribe(self, topic: str, qos: int) -> None:
        await self._client.subscribe(topic, qos)

    async def publish(
        self, topic: str, payload: bytes, qos: int, retain: bool = False, props: dict[str, Any] | None = None
    ) -> None:
        properties = Properties(PacketTypes.PUBLISH) if props else None
        for name, value in (props or {}).items():
            setattr(properties, _PAHO[name], value)
        await self._client.publish(topic, payload, qos, retain, properties)

    async def next(self) -> Message:
        got = await asyncio.wait_for(anext(self._messages), LIMIT_S)
        props = {ours: getattr(got.properties, theirs, None) for ours, theirs in _PAHO.items()}
        return Message(got.topic.value, bytes(got.payload), got.qos, got.retain, props)

    async def close(self) -> None:
        await self._client.__aexit__(None, None, None)

    async def drop(self) -> None:
        client = self._client._client
        found = client.socket()
        assert found is not None
        found.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(aiomqtt.MqttError):
            await anext(self._messages)
        with contextlib.suppress(aiomqtt.MqttError):
            await self._client.__aexit__(None, None, None)


class Gmqtt:
    """gmqtt, a codec and a session of its own."""

    versions = (4, 5)

    async def connect(self, options: Options) -> None:
        will = None
        if options.will:
            topic, payload, qos, retain = options.will
            will = gmqtt.Message(topic, payload, qos=qos, retain=retain)
        expiry = {} if options.clean or options.version == 4 else {"session_expiry_interval": KEPT_S}
        self._client = gmqtt.Client(options.client_id, options.clean, will_message=will, **expiry)
        self._client.set_config({"reconnect_retries": 0})
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._granted: asyncio.Queue[Any] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._client.on_message = self._take
        self._client.on_subscribe = lambda client, mid, qos, properties: self._granted.put_nowait(qos)
        self._client.on_disconnect = lambda client, packet, exc=None: self._gone.set()
        await self._client.connect("127.0.0.1", options.port, version=options.version)

    def _take(self, client: Any, topic: str, payload: bytes, qos: int, properties: dict[str, Any]) -> int:
        props = {}
        for ours, theirs in _GMQTT.items():
            value = properties.get(theirs)
            props[ours] = value if ours == USER else value[0] if value else None
        self._messages.put_nowait(Message(topic, bytes(payload), qos, bool(properties["retain"]), props))
        return 0

    async def subscribe(self, topic: str, qos: int) -> None:
        self._client.subscribe(topic, qos)
        await asyncio.wait_for(self._granted.get(), LIMIT_S)

    async def publish(
        self, topic: str, payload: bytes, qos: int, retain: bool = False, props: dict[str, Any] | None = None
    ) -> None:
        given = {_GMQTT[name]: value for name, value in (props or {}).items()}
        self._client.publish(topic, payload, qos=qos, retain=retain, **given)

    async def next(self) -> Message:
        return await asyncio.wait_for(self._messages.get(), LIMIT_S)

    async def close(self) -> None:
        await self._client.disconnect()

    async def drop(self) -> None:
        self._client._connection._transport.abort()
        await asyncio.wait_for(self._gone.wait(), LIMIT_S)


class Amqtt:
    """amqtt's client: MQTT 3.1.1 only."""

    versions = (4,)

    async def connect(self, options: Options) -> None:
        config: dict[str, Any] = {"auto_reconnect": False, "default_qos": 0}
        if options.will:
            topic, payload, qos, retain = options.will
            config["will"] = {"topic": topic, "message": payload.decode(), "qos": qos, "retain": retain}
        self._client = MQTTClient(client_id=options.client_id, config=config)
        uri = f"mqtt://127.0.0.1:{options.port}/"
        assert await self._client.connect(uri, cleansession=options.clean) == 0

    async def subscribe(self, topic: str, qos: int) -> None:
        assert await self._client.subscribe([(topic, qos)]) == [qos]

    async def publish(
        self, topic: str, payload: bytes, qos: int, retain: bool = False, props: dict[str, Any] | None = None
    ) -> None:
        await self._client.publish(topic, payload, qos, retain)

    async def next(self) -> Message:
        got = await self._client.deliver_message(timeout_duration=LIMIT_S)
        assert got is not None and got.topic is not None and got.publish_packet is not None
        return Message(got.topic, bytes(got.data or b""), got.qos, got.publish_packet.retain_flag)

    async def close(self) -> None:
        await self._client.disconnect()

    async def drop(self) -> None:
        session = self._client.session
        assert session is not None and self._client._handler is not None
        await self._client._handler.writer.close()
        await self._client.cancel_tasks()


DRIVERS: dict[str, type[Any]] = {"aiomqtt": Aiomqtt, "gmqtt": Gmqtt, "amqtt": Amqtt}
EACH = [(name, version) for name, driver in DRIVERS.items() for version in driver.versions]
