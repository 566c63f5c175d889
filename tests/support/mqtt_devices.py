"""A client of paho that waits: for a connection, a subscription, messages."""

from __future__ import annotations

import queue
from types import TracebackType
from typing import Any, Self

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.support.limits import LIMIT_S

__all__ = ["Device"]


class Device:
    """One client. Its session stays for a day after it leaves.

    Args:
        port: On loopback.
        client_id: The client's.
        login: User name and password; None: neither.
        version: `paho.MQTTv5` or `paho.MQTTv311`.

    """

    def __init__(
        self, port: int, client_id: str, login: tuple[str, str] | None = None, *, version: Any = paho.MQTTv5
    ) -> None:
        self.got: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self._granted: queue.Queue[object] = queue.Queue()
        self._connected: queue.Queue[tuple[bool, Any]] = queue.Queue()
        stays = Properties(PacketTypes.CONNECT)
        stays.SessionExpiryInterval = 86_400
        is_5 = version == paho.MQTTv5
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id,
            protocol=version,
            clean_session=None if is_5 else False,
        )
        if login is not None:
            self.client.username_pw_set(*login)
        self.client.on_message = lambda _, __, message: self.got.put(message)
        self.client.on_subscribe = lambda *_: self._granted.put(None)
        self.client.on_connect = lambda _, __, flags, reason, ___: self._connected.put(
            (flags.session_present, reason)
        )
        words: dict[str, Any] = {"clean_start": False, "properties": stays} if is_5 else {}
        self.client.connect("127.0.0.1", port, **words)
        self.client.loop_start()
        self.present, self.reason = self._connected.get(timeout=LIMIT_S)

    def subscribe(self, topic: str, qos: int) -> None:
        self.client.subscribe(topic, qos)
        self._granted.get(timeout=LIMIT_S)

    def publish(self, topic: str, payload: str, qos: int, *, retain: bool = False, **more: Any) -> None:
        """Publish, and wait for the acknowledgement; `more` are user properties."""
        properties = None
        if more:
            properties = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = list(more.items())
        self.client.publish(topic, payload, qos, retain, properties).wait_for_publish(LIMIT_S)

    def take(self, count: int) -> list[tuple[str, str]]:
        """The next `count` messages: topic and payload."""
        messages = [self.got.get(timeout=LIMIT_S) for _ in range(count)]
        return [(message.topic, message.payload.decode()) for message in messages]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.disconnect()
        self.client.loop_stop()
