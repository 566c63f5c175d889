"""The life of an MQTT connection. The module text is in _connection_lifecycle.pyx."""

import asyncio
from typing import Literal

from penstock.protocols.listening.front_end import FrontEnd
from penstock.protocols.mqtt.auth.amqtt_host import AmqttClient, AmqttHost
from penstock.protocols.mqtt.clients.clients import Clients
from penstock.protocols.mqtt.options import MqttOptions
from penstock.protocols.mqtt.publishing.sys_topics import Counts
from penstock.protocols.mqtt.session.session import Session
from penstock.protocols.net._lifecycle import Life
from penstock.protocols.net.connection_context import ConnectionContext
from penstock.protocols.net.connection_info import Totals
from penstock.router.authorization.identity import Identity
from penstock.router.authorization.topic_rules import TopicGuard
from penstock.subscriptions.tick._tick import Sink

class MqttLifecycle(Life):
    """A part of `MqttConnection`, which derives from it."""

    session: Session
    _clients: Clients
    _options: MqttOptions
    _login: asyncio.Task[None] | None
    """Verifies the login, or asks plugins; one thing at a time."""
    _amqtt: AmqttHost | None
    _amqtt_client: AmqttClient | None
    _is_open: bool
    _backpressure: bool

    def __init__(self, context: ConnectionContext, clients: Clients, front_end: FrontEnd) -> None: ...
    def received(self, buffer: bytearray, size: int) -> int: ...
    def answer(self) -> None: ...
    def on_writable(self) -> None: ...
    def on_durable(self, ok: bool) -> None: ...
    def on_lost(self) -> None: ...
    def guarded_by(self, guard: TopicGuard) -> None:
        """There are further rules about topics. `MqttConnection`'s."""

    def slow_down(self, wait_s: float) -> None:
        """Read nothing for so long. `MqttConnection`'s."""

    def judge(self, user_name: str | None, password: bytes | None) -> None:
        """As `login`, where more has to be looked at than whether anybody may. `MqttConnection`'s."""

    @property
    def sink(self) -> Sink: ...
    def login(self, user_name: str | None, password: bytes | None) -> None:
        """Verify; the session is told at once or, after a slow hash, later; nothing is read until then."""

    def _let_in(self, identity: Identity) -> None: ...
    def unchecked(self, allowed: Literal["loopback"] | bool) -> None:
        """Let in, or refuse, a client whose name and password are not looked at."""

    def anonymous(self, allowed: Literal["loopback"] | bool) -> Identity:
        """The identity of such a client; `allowed`: from where. Raises AuthenticationRefused."""

    def admitted_as(self, client_id: str) -> None:
        """Plugins have let the client in. `MqttConnection`'s."""

    def opened(self, user: str, client_id: str, version: int) -> None:
        """Say that the client is connected."""

    def end(self, reason: str) -> None:
        """Send what is encoded, then close."""

    def add_to(self, counts: Counts) -> None:
        """Count what this connection has counted."""

    def message_counts(self) -> tuple[int, int]: ...
    @property
    def spoken(self) -> str: ...
    def add_totals(self, sums: Totals) -> None: ...
