"""A bridge: topics of the gateway to another MQTT broker, and of that one to the gateway.

The gateway's own side is a session like any other, with MQTT 5. So messages that go out wait in the log while
the other broker is away. The bridge keeps nothing: packets pass with their packet ids, and each broker is the
other one's counterpart.

    gateway's session --PUBLISH 7--> topic renamed --PUBLISH 7--> other broker
           <--PUBREC 7--              <--PUBREC 7--
           --PUBREL 7-->              --PUBREL 7-->
           <--PUBCOMP 7--             <--PUBCOMP 7--

Both brokers keep what MQTT asks of sessions: a message of QoS 2 crosses once even when the bridge or either
broker is killed in between. When one of them has lost the session, the other one's memory of packet ids would
be of messages that are no more. So it is told to forget them: a PUBREL for each id.

Source: mosquitto.conf(5), "Configuring bridges"; MQTT 3.1.1 and 5.0, 4.3 and 4.4.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from penstock.config import Address
from penstock.config.bridges import Bridge as Settings
from penstock.logs import fields
from penstock.protocols.links.errors import LinkError
from penstock.protocols.links.link import Link
from penstock.protocols.links.mqtt._relay import InFlight, Relay
from penstock.protocols.links.mqtt.packets import VersionRefused, connect, retained
from penstock.protocols.links.mqtt.side import Side
from penstock.protocols.links.mqtt.topics import mapping
from penstock.protocols.links.stream import Stream
from penstock.protocols.links.tls import client_tls

if TYPE_CHECKING:
    from penstock.protocols.links.local import Local

__all__ = ["Bridge"]

logger: Final = logging.getLogger("penstock.links")

_LEVELS: Final = {"mqttv31": 3, "mqttv311": 4, "mqttv50": 5}
_PRIVATE: Final = 0x80
_MOST: Final = 16_384
"""Messages of QoS 1 and 2 under way by MQTT 5, each way: each side keeps 11 bytes or less for each."""
_MOST_OF_3: Final = 20
"""With MQTT 3, which has no word for it: a Mosquitto drops messages of QoS 2 above that."""
_OPTIONS: Final = 0x04 | 0x08 | 0x10
"""Of a subscription with MQTT 5: no-local, RETAIN as published, retained messages when it is new."""

_Direction = Literal["out", "in"]


class Bridge(Link):
    """See the module."""

    kind = "bridge"

    def __init__(self, settings: Settings, user: str, local: Local, receive_maximum: int) -> None:
        """A bridge that `run` begins.

        Args:
            settings: From the configuration.
            user: Of the gateway, whose rights it has.
            local: The gateway's own side.
            receive_maximum: Messages that the gateway takes from a client at a time.

        """
        super().__init__(settings.vhost, settings.name, settings.restart_timeout)
        self.settings: Final = settings
        self.remote_id: Final = settings.remote_clientid or f"{socket.gethostname()}.{settings.name}"
        self.local_id: Final = settings.local_clientid or f"local.{self.remote_id}"
        self.refused = 0
        """Messages that a broker refused, or that no topic of the bridge lets pass."""
        self._user = user
        self._local = local
        self._receive_maximum = receive_maximum
        self._maximum_qos = 2
        """The highest QoS there, as the other broker last said."""
        self._speak(settings.protocol_version)

    def _speak(self, version: str) -> None:
        """Speak this version of MQTT with the other broker from now on."""
        self._version = version
        self._private = self.settings.try_private and version != "mqttv50"
        self._window = self.settings.max_inflight_messages or (_MOST if version == "mqttv50" else _MOST_OF_3)
        """Messages that the other broker takes at a time, as it last said."""

    def facts(self) -> Mapping[str, Any]:
        settings = self.settings
        return {
            "address": settings.address,
            "tls": settings.tls,
            "protocol_version": self._version,
            "local_clientid": self.local_id,
            "remote_clientid": self.remote_id,
            "topics": [
                {
                    "pattern": one.pattern,
                    "direction": one.direction,
                    "qos": one.qos,
                    "local_prefix": one.local_prefix,
                    "remote_prefix": one.remote_prefix,
                }
                for one in settings.topics
            ],
            "messages_ready": self._local.waiting(self.vhost, self.local_id),
            "refused": self.refused,
        }

    async def _serve(self) -> None:
        while True:
            # The gateway's side first: its session then never expires while the other broker is away.
            async with await self._open_local() as local, await self._open_remote() as remote:
                if not self._takes_less(remote):
                    await self._forget(local, remote)
                    await self._move(local, remote)

    def _takes_less(self, remote: Side) -> bool:
        """Whether the other broker takes less than our session would give: both connect anew at once then."""
        window = min(remote.in_flight.most, self._window)
        maximum_qos = min(remote.connack.maximum_qos, self._maximum_qos)
        takes_less = (window, maximum_qos) != (self._window, self._maximum_qos)
        self._window, self._maximum_qos = window, maximum_qos
        return takes_less

    # Connecting

    async def _open_local(self) -> Side:
        settings = self.settings
        packet = connect(
            5,
            self.local_id,
            user=f"{settings.vhost}:{self._user}",
            password=self._local.ticket(settings.vhost, self._user),
            clean=settings.cleansession,
            keepalive_s=settings.keepalive_interval,
            receive_maximum=self._window,
            will=self._will(local=True),
        )
        filters = [
            (one.local, min(one.qos, self._maximum_qos) | _OPTIONS)
            for one in settings.topics
            if one.direction != "in"
        ]
        return await Side.open("local", await self._local.connect("mqtt"), packet, filters, is_5=True)

    async def _open_remote(self) -> Side:
        settings = self.settings
        host, port = Address.parse(settings.address)
        tls = None
        if settings.tls:
            tls = client_tls(
                ca_file=settings.cafile,
                cert_file=settings.certfile,
                key_file=settings.keyfile,
                verify=not settings.insecure,
            )
        try:
            stream = await Stream.connect(host, port, tls)
        except OSError as error:
            told = f"remote: no connection to {settings.address}: {error.strerror or error}"
            raise LinkError(told) from None
        level = _LEVELS[self._version]
        is_5 = level == 5
        packet = connect(
            level | (_PRIVATE if self._private else 0),
            self.remote_id,
            user=settings.remote_username,
            password=settings.remote_password,
            clean=settings.cleansession,
            keepalive_s=settings.keepalive_interval,
            receive_maximum=min(InFlight(self._receive_maximum).most, _MOST),
            will=self._will(local=False),
        )
        options = _OPTIONS if is_5 else 0
        filters = [(one.remote, one.qos | options) for one in settings.topics if one.direction != "out"]
        try:
            return await Side.open("remote", stream, packet, filters, is_5=is_5)
        except VersionRefused:
            # The next attempt is a client's, if it knows no bridges; or one by MQTT 3.1.1.
            if self._private:
                self._private = False
            elif is_5:
                self._speak("mqttv311")
            raise

    async def _forget(self, local: Side, remote: Side) -> None:
        """Have the one side forget packet ids of a session that the other side has lost."""
        for taker, giver, direction in ((remote, local, "out"), (local, remote, "in")):
            is_exact = any(
                one.qos == 2 and one.direction in (direction, "both") for one in self.settings.topics
            )
            if is_exact and taker.connack.session_present and not giver.connack.session_present:
                await taker.forget_received()

    # Notifications

    @property
    def _notice(self) -> str:
        return self.settings.notification_topic or f"$SYS/broker/connection/{self.remote_id}/state"

    def _will(self, *, local: bool) -> tuple[str, bytes] | None:
        settings = self.settings
        wanted = settings.notifications and (local or not settings.notifications_local_only)
        return (self._notice, b"0") if wanted else None

    def _notify(self, local: Side, remote: Side, state: bytes) -> None:
        """Say whether the bridge is up: retained, at both ends."""
        for side, is_local in ((local, True), (remote, False)):
            if self._will(local=is_local) is not None:
                with contextlib.suppress(LinkError):  # whoever reads there finds it lost, too
                    side.write(retained(self._notice, state, is_5=side.is_5))

    # Moving

    async def _move(self, local: Side, remote: Side) -> None:
        """Relay both ways. Raises ExceptionGroup: a connection is lost."""
        self._up()
        self._notify(local, remote, b"1")
        keepalive_s = self.settings.keepalive_interval
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._relay(local, remote, "out"))
                tasks.create_task(self._relay(remote, local, "in"))
                tasks.create_task(local.keep_alive(local.connack.keepalive_s or keepalive_s))
                tasks.create_task(remote.keep_alive(remote.connack.keepalive_s or keepalive_s))
        finally:
            self._notify(local, remote, b"0")

    async def _relay(self, source: Side, target: Side, direction: _Direction) -> None:
        """Pass on what comes from `source`: publishes of this direction, and answers of the other one."""
        retains = direction == "in" or self.settings.outgoing_retain
        relay = Relay(
            source.in_flight,
            target.in_flight,
            from_5=source.is_5,
            to_5=target.is_5,
            name_of=mapping(self.settings.topics, direction),
            keeps_retain=retains and target.connack.retain_available,
            most=target.connack.maximum_packet_size,
        )
        while True:
            await source.relayed(relay)
            if relay.out:
                target.write(relay.out)
            if relay.answers:
                source.write(relay.answers)
            self.counts.forwarded += relay.forwarded
            self._say_refused(relay.unnamed, "no topic of it lets it pass")
            self._say_refused(relay.too_large, "the other broker takes none so large")
            for reason in relay.reasons:
                self._say_refused(1, f"{source.name} refused it (reason {reason:#04x})")
            if relay.ended >= 0:
                told = f"the connection was ended there (reason {relay.ended:#04x})"
                raise LinkError(f"{source.name}: {told}")
            await target.drain()

    def _say_refused(self, count: int, why: str) -> None:
        before, self.refused = self.refused, self.refused + count
        # 1, 2, 4, 8 ...: one line per doubling is enough.
        if before.bit_length() < self.refused.bit_length():
            logger.warning(
                "a bridge lost a message: %s", why, extra=fields(link=self.name, refused=self.refused)
            )
