"""A small blocking face over paho, for tests: connect, subscribe, publish, and wait for what must come.

One thread runs the client's own loop (`loop_start`); what arrives goes to queues that the test reads.
"""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.support.limits import LIMIT_S

QUIET_S = 0.3
"""How long to listen for what must not come, after a message sent later has come already."""


class Client:
    """A paho client with its loop running.

    Args:
        port: On 127.0.0.1.
        client_id: Empty lets the broker choose (clean sessions only).
        version: 4 for MQTT 3.1.1, 5 for MQTT 5.
        clean: Clean session (3.1.1) or clean start with no expiry (5).
        expiry_s: Session expiry interval of MQTT 5; given, the session outlives the connection.
        will: Arguments of `will_set`.
        keepalive_s: In seconds.

    """

    def __init__(
        self,
        port: int,
        client_id: str = "",
        *,
        version: int = 4,
        clean: bool = True,
        expiry_s: int | None = None,
        will: dict[str, Any] | None = None,
        keepalive_s: int = 60,
    ) -> None:
        self.version = version
        self.port = port
        self.messages: queue.Queue[mqtt.MQTTMessage] = queue.Queue()
        self._connected: queue.Queue[tuple[mqtt.ConnectFlags, Any]] = queue.Queue()
        self._granted: queue.Queue[tuple[int, list[int]]] = queue.Queue()
        self._unsubscribed: queue.Queue[tuple[int, list[int]]] = queue.Queue()
        self.disconnects: queue.Queue[Any] = queue.Queue()
        options: dict[str, Any] = {"reconnect_on_failure": False}
        if version == 4:
            options["clean_session"] = clean
        self.paho = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            protocol=mqtt.MQTTv5 if version == 5 else mqtt.MQTTv311,
            **options,
        )
        self.paho.on_connect = lambda _, __, flags, reason, ___: self._connected.put((flags, reason))
        self.paho.on_subscribe = lambda _, __, mid, codes, ___: self._granted.put(
            (mid, [c.value for c in codes])
        )
        self.paho.on_unsubscribe = lambda _, __, mid, codes, ___: self._unsubscribed.put(
            (mid, [c.value for c in codes])
        )
        self.paho.on_disconnect = lambda _, __, ___, reason, ____: self.disconnects.put(reason)
        self.paho.on_message = lambda _, __, message: self.messages.put(message)
        if will is not None:
            self.paho.will_set(**will)
        self._arguments: dict[str, Any] = {"keepalive": keepalive_s}
        if version == 5:
            self._arguments["clean_start"] = clean
            if expiry_s is not None:
                properties = Properties(PacketTypes.CONNECT)
                properties.SessionExpiryInterval = expiry_s
                self._arguments["properties"] = properties
        self.session_present = False
        self.reason: Any = None
        self.connect()

    def connect(self) -> None:
        """Connect (again) and wait for CONNACK; `session_present` and `reason` are what it said."""
        self.paho.connect("127.0.0.1", self.port, **self._arguments)
        self.paho.loop_start()
        flags, self.reason = self._connected.get(timeout=LIMIT_S)
        self.session_present = flags.session_present

    def close(self) -> None:
        """Disconnect as a client that is done; its will is not sent."""
        self.paho.disconnect()
        self.end()

    def drop(self) -> None:
        """Vanish: the socket closes without DISCONNECT, so that the will is due."""
        s = self.paho.socket()
        if s is not None:
            s.shutdown(socket.SHUT_RDWR)
        self.disconnects.get(timeout=LIMIT_S)
        self.end()

    def end(self) -> None:
        """End the loop of a client that is disconnected, and close its sockets.

        paho itself closes the pair that wakes its loop only when it is collected, perhaps in another test.
        """
        self.paho.loop_stop()
        self.paho._reset_sockets()

    def subscribe(self, topic: str, qos: int = 0, **options: Any) -> int:
        """Subscribe and return what was granted; options are those of MQTT 5."""
        if options or self.version == 5:
            _, mid = self.paho.subscribe(topic, options=SubscribeOptions(qos=qos, **options))
        else:
            _, mid = self.paho.subscribe(topic, qos)
        got_mid, codes = self._granted.get(timeout=LIMIT_S)
        assert got_mid == mid
        return codes[0]

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe and wait for UNSUBACK."""
        self.paho.unsubscribe(topic)
        self._unsubscribed.get(timeout=LIMIT_S)

    def publish(
        self, topic: str, payload: bytes | str = b"", qos: int = 0, *, retain: bool = False, **properties: Any
    ) -> None:
        """Publish and, at QoS 1 and 2, wait until the broker has answered."""
        encoded = None
        if properties:
            encoded = Properties(PacketTypes.PUBLISH)
            for name, value in properties.items():
                setattr(encoded, name, value)
        info = self.paho.publish(topic, payload, qos, retain, encoded)
        info.wait_for_publish(LIMIT_S)
        assert info.is_published(), f"no answer in {LIMIT_S} s"

    def next(self, limit_s: float = LIMIT_S) -> mqtt.MQTTMessage:
        """The next message; raises queue.Empty when none comes."""
        return self.messages.get(timeout=limit_s)

    def payloads(self, count: int) -> list[bytes]:
        """The payloads of the next `count` messages."""
        return [bytes(self.next().payload) for _ in range(count)]

    def quiet(self, seconds: float = QUIET_S) -> bool:
        """Whether nothing comes for a while. Use it after something sent later has arrived elsewhere."""
        try:
            message = self.messages.get(timeout=seconds)
        except queue.Empty:
            return True
        self.messages.put(message)
        return False


@contextmanager
def connected(port: int, client_id: str = "", **options: Any) -> Iterator[Client]:
    """A connected client, disconnected afterwards."""
    client = Client(port, client_id, **options)
    try:
        yield client
    finally:
        client.close()
