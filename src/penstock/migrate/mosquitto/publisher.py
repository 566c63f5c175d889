"""Publishes stored messages over MQTT 5, many at a time, and says which were refused.

paho connects again by itself, and sends again what was not acknowledged.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Self

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from penstock.migrate.mosquitto.database import Message
from penstock.migrate.report import MigrationError

if TYPE_CHECKING:
    from paho.mqtt.reasoncodes import ReasonCode

__all__ = ["Publisher"]

_UNDER_WAY_MAX: Final = 500
_EXPIRY_MAX_S: Final = 2**32 - 1
_LOOK_S: Final = 0.5


class Publisher:
    """One connection. Use it as a context."""

    def __init__(self, host: str, port: int, user: str, password: str, *, timeout_s: float) -> None:
        """Connect when it is entered.

        Args:
            host: Of the MQTT listener.
            port: Of the MQTT listener.
            user: With the vhost in front, as `VHOST:NAME`.
            password: The user's.
            timeout_s: How long nothing may be acknowledged.

        """
        self._place = (host, port)
        self._timeout_s = timeout_s
        self.refused: list[tuple[str, str]] = []
        """Topic and reason of each message that was refused."""
        self._topics: dict[int, str] = {}
        """Of messages under way, by packet id."""
        self._lock = threading.Lock()
        self._infos: list[paho.MQTTMessageInfo] = []
        self._failure = ""
        self._client = paho.Client(CallbackAPIVersion.VERSION2, "penstock-migrate", protocol=paho.MQTTv5)
        self._client.username_pw_set(user, password)
        self._client.max_inflight_messages_set(_UNDER_WAY_MAX)
        self._client.reconnect_delay_set(1, 5)
        self._client.on_publish = self._on_publish
        self._client.on_connect = self._on_connect

    def __enter__(self) -> Self:
        try:
            self._client.connect(*self._place)
        except OSError as error:
            host, port = self._place
            raise MigrationError(
                f"no MQTT listener answers at {host}:{port}: {error}", remedy="name it with --mqtt HOST:PORT"
            ) from None
        self._client.loop_start()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    @property
    def idle(self) -> bool:
        """Whether all that was published is acknowledged."""
        return not self._infos

    def publish(self, message: Message, *, retain: bool) -> None:
        """Send a message, unless it has expired. `flush` waits for its acknowledgement, and so does the last
        of `_UNDER_WAY_MAX` messages. Raises MigrationError, see there.
        """
        properties = _properties(message)
        if properties is None:
            return
        with self._lock:
            info = self._client.publish(message.topic, message.payload, message.qos, retain, properties)
            if message.qos:
                self._topics[info.mid] = message.topic
        self._infos.append(info)
        if len(self._infos) >= _UNDER_WAY_MAX:
            self.flush()

    def flush(self) -> None:
        """Wait until all are acknowledged, or refused.

        Raises:
            MigrationError: nothing was acknowledged for too long.

        """
        for info in self._infos:
            waiting_since = time.monotonic()
            while not info.is_published():
                if self._failure or time.monotonic() - waiting_since > self._timeout_s:
                    raise MigrationError(
                        f"messages are not acknowledged: {self._failure or 'no connection'}",
                        remedy="start the gateway and repeat the command: it goes on where it was",
                    )
                info.wait_for_publish(_LOOK_S)
        self._infos.clear()

    def _on_publish(
        self, _: paho.Client, __: object, mid: int, reason: ReasonCode, ___: Properties | None
    ) -> None:
        with self._lock:
            topic = self._topics.pop(mid, "")
        if reason.is_failure:
            self.refused.append((topic, str(reason)))

    def _on_connect(
        self, _: paho.Client, __: object, ___: paho.ConnectFlags, reason: ReasonCode, ____: Properties | None
    ) -> None:
        self._failure = str(reason) if reason.is_failure else ""


def _properties(message: Message) -> Properties | None:
    """The properties of a message; None: it has expired."""
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    if message.properties:
        properties.unpack(message.properties)  # type: ignore[no-untyped-call]
    if message.expires_at:
        left_s = message.expires_at - int(time.time())
        if left_s <= 0:
            return None
        properties.MessageExpiryInterval = min(left_s, _EXPIRY_MAX_S)
    return properties
