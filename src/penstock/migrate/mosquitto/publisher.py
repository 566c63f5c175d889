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
_PAUSE_S: Final = 0.5


class Publisher:
    """One connection. Use it as a context."""

    def __init__(self, host: str, port: int, user: str, password: str, *, timeout_s: float) -> None:
        """Connect when it is entered.

        Args:
            host: Of the MQTT listener.
            port: Of the MQTT listener.
            user: With the vhost in front, as `VHOST:NAME`.
            password: The user's.
            timeout_s: How long nobody may answer, and nothing be acknowledged.

        """
        self._place = (host, port)
        self._timeout_s = timeout_s
        self.refused: list[tuple[str, str]] = []
        """Topic and reason of each message that was refused."""
        self._under_way: dict[int, str] = {}
        """Topics of messages that are not acknowledged, or of QoS 0 and not sent, by packet id. paho's own
        record of a message says that it failed when there was no connection, though it is sent later."""
        self._at_most_once: set[int] = set()
        """Those of QoS 0, which a lost connection may lose."""
        self._early: dict[int, ReasonCode] = {}
        """Acknowledgements that came before `publish` had noted the message."""
        self._changed = threading.Condition()
        """Of both. It is not held while paho is called: paho calls back under locks of its own."""
        self._failure = ""
        self._client = paho.Client(CallbackAPIVersion.VERSION2, "penstock-migrate", protocol=paho.MQTTv5)
        self._client.username_pw_set(user, password)
        self._client.max_inflight_messages_set(_UNDER_WAY_MAX)
        self._client.reconnect_delay_set(1, 5)
        self._client.on_publish = self._on_publish
        self._client.on_connect = self._on_connect

    def __enter__(self) -> Self:
        until = time.monotonic() + self._timeout_s
        while True:
            try:
                self._client.connect(*self._place)
                break
            except OSError as error:  # the gateway may be starting again
                if time.monotonic() > until:
                    host, port = self._place
                    raise MigrationError(
                        f"no MQTT listener answers at {host}:{port}: {error}",
                        remedy="name it with --mqtt HOST:PORT",
                    ) from None
            time.sleep(_PAUSE_S)
        self._client.loop_start()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    @property
    def idle(self) -> bool:
        """Whether all that was published is acknowledged."""
        return not self._under_way

    def publish(self, message: Message, *, retain: bool) -> None:
        """Send a message, unless it has expired. `flush` waits for its acknowledgement, and so does the last
        of `_UNDER_WAY_MAX` messages. Raises MigrationError, see there.
        """
        properties = _properties(message)
        if properties is None:
            return
        info = self._client.publish(message.topic, message.payload, message.qos, retain, properties)
        with self._changed:
            self._under_way[info.mid] = message.topic
            if not message.qos:
                self._at_most_once.add(info.mid)
            if info.mid in self._early:
                self._settle(info.mid, self._early.pop(info.mid))
        if len(self._under_way) >= _UNDER_WAY_MAX:
            self.flush()

    def flush(self) -> None:
        """Wait until all are acknowledged, or refused.

        Raises:
            MigrationError: nothing was acknowledged for too long.

        """
        with self._changed:
            while self._under_way:
                if not self._changed.wait(self._timeout_s) or self._failure:
                    raise MigrationError(
                        f"messages are not acknowledged: {self._failure or 'no connection'}",
                        remedy="start the gateway and repeat the command: it goes on where it was",
                    )

    def _on_publish(
        self, _: paho.Client, __: object, mid: int, reason: ReasonCode, ___: Properties | None
    ) -> None:
        with self._changed:
            if mid in self._under_way:
                self._settle(mid, reason)
            else:
                self._early[mid] = reason
            self._changed.notify()

    def _settle(self, mid: int, reason: ReasonCode) -> None:
        topic = self._under_way.pop(mid)
        self._at_most_once.discard(mid)
        if reason.is_failure:
            self.refused.append((topic, str(reason)))

    def _on_connect(
        self, _: paho.Client, __: object, ___: paho.ConnectFlags, reason: ReasonCode, ____: Properties | None
    ) -> None:
        with self._changed:
            self._failure = str(reason) if reason.is_failure else ""
            for mid in self._at_most_once:
                del self._under_way[mid]
            self._at_most_once.clear()
            self._changed.notify()


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
