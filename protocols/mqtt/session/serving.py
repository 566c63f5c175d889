"""Handlers of the packets of an open MQTT connection, one by one.

SUBSCRIBE, UNSUBSCRIBE, AUTH and DISCONNECT come here, and the PUBLISH that the kernel leaves to Python.
`Session` scans, and hands each of them to `_on_packet` or `_on_publish` in the order of the stream; publishes
and acknowledgements that go the fast path never come here. A fault of the peer is raised as `MqttError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.protocols.mqtt.clients.client import Client
from penstock.protocols.mqtt.codec import packets, reasons
from penstock.protocols.mqtt.codec._scan import Scanner
from penstock.protocols.mqtt.codec.reason_strings import ReasonStrings
from penstock.protocols.mqtt.codec.reasons import MqttError, Violation
from penstock.protocols.mqtt.delivery.delivery import Delivery
from penstock.protocols.mqtt.delivery.subscribing import subscribe, unsubscribe
from penstock.protocols.mqtt.publishing.publishing import publish_here, tell_refused
from penstock.protocols.mqtt.session.authenticating import Authentication
from penstock.protocols.mqtt.session.opening import Opening
from penstock.router.errors import AuthenticationRefused

if TYPE_CHECKING:
    from penstock.protocols.mqtt.codec.properties import Properties
    from penstock.router.authorization.permissions import TopicOperation

__all__ = ["Serving"]

_ACK_HEAD_MAX: Final = 8
"""Bytes of SUBACK and UNSUBACK at most, without properties and the codes, one for each filter."""


class Serving(Opening):
    """The handling of packets by `Session` once it is open."""

    @property
    def _words(self) -> ReasonStrings:
        """Packets with reason strings for this client, who has connected."""
        if self._known_words is None:
            self._known_words = ReasonStrings(self.version, self._connect_properties)
        return self._known_words

    def _delivering(self, client: Client) -> Delivery:
        """The output side, which is made if there is none yet."""
        raise NotImplementedError

    def _on_packet(self, kind: int, flags: int, body: bytes) -> None:
        self._packets += 1
        if self.version == packets.MQTT_3_1:
            # 3.1 says that flags without a meaning are not looked at; DUP has one for what is sent again.
            flags = 2 if kind in (packets.SUBSCRIBE, packets.UNSUBSCRIBE) else 0
        if kind == packets.PINGREQ:
            if flags or body:
                raise reasons.Malformed("PINGREQ with flags or a body")
            self._replies.send(packets.PINGRESP)
        elif kind == packets.SUBSCRIBE:
            subscribe = packets.decode_subscribe(body, flags, self.version)
            if self.bridge:
                # MQTT 3 has no words for it: a bridge's own messages do not come back, and RETAIN is kept.
                for line in subscribe.filters:
                    line.no_local = not line.topic.startswith("$share/")
                    line.retain_as_published = True
            topics = [line.topic for line in subscribe.filters]
            self._decide("read", topics, lambda: self._on_subscribe(subscribe))
        elif kind == packets.UNSUBSCRIBE:
            self._on_unsubscribe(packets.decode_unsubscribe(body, flags, self.version))
        elif kind == packets.DISCONNECT and not (flags or body):
            self.will = None
            self._end("the client disconnected")
        elif kind == packets.DISCONNECT:
            self._on_disconnect(packets.decode_disconnect(body, flags, self.version))
        elif kind == packets.AUTH and self.version == packets.MQTT_5:
            self._on_auth(*packets.decode_auth(body, flags))
        elif flags:
            raise reasons.Malformed("a packet with wrong fixed header flags")  # mqtt5:2.1.3-1
        elif kind == packets.CONNECT:
            raise Violation("a second CONNECT")  # mqtt5:3.1.0-2
        else:
            raise Violation("a packet that only servers send")

    def _check_room_for_answer(self, filters: int) -> None:
        """A client that cannot take an answer to so many filters is told so before anything is done."""
        if _ACK_HEAD_MAX + filters > self._max_packet:
            what = "SUBSCRIBE or UNSUBSCRIBE with an answer above the client's maximum packet size"
            raise Violation(what, reasons.PACKET_TOO_LARGE)  # mqtt5:3.1.2-24

    def _on_subscribe(self, packet: packets.Subscribe) -> None:
        words = self._words
        assert self.client is not None
        self._check_room_for_answer(len(packet.filters))
        delivery = self._delivering(self.client)
        results, wanted, lsn = subscribe(
            self._clients, self._options, self.client, delivery.replays, packet, self.version
        )
        delivery.subscribed([line.topic for line in packet.filters])
        suback = words.suback(packet.packet_id, results, [line.topic for line in packet.filters])
        begun = self.client.vhost.retained.begin() if wanted else 0
        self._replies.send(suback, lsn, lambda: delivery.retained(wanted, begun))

    def _on_unsubscribe(self, packet: packets.Unsubscribe) -> None:
        words = self._words
        assert self.client is not None
        self._check_room_for_answer(len(packet.filters))
        delivery = self._delivering(self.client)
        results, lsn = unsubscribe(self._clients, self.client, delivery.replays, packet)
        delivery.subscribed(())
        self._replies.send(words.unsuback(packet.packet_id, results, packet.filters), lsn)

    def _on_disconnect(self, packet: packets.Disconnect) -> None:
        assert self.client is not None
        if "session_expiry_s" in packet.properties:
            expiry_s = min(packet.properties["session_expiry_s"], self._options.session_expiry_max_s)
            if expiry_s and not self.client.expiry_s:
                raise Violation("a session expiry in DISCONNECT after none in CONNECT")  # mqtt5:3.14.2-2
            self.client.expiry_s = expiry_s
        if packet.reason == reasons.SUCCESS:
            self.will = None  # with any other reason it is published (mqtt5:3.1.2-8, mqtt5:3.14.4-3)
        self._end("the client disconnected")

    def _on_publish(self, scanner: Scanner, payload: bytes) -> None:
        """A PUBLISH that cannot go the fast path."""
        self._decide("write", [scanner.topic.decode()], lambda: self._publish_here(scanner, payload))

    def _publish_here(self, scanner: Scanner, payload: bytes) -> None:
        assert self.client is not None
        published = publish_here(self.client, scanner, payload)
        if published.reason >= reasons.UNSPECIFIED:
            self._refused += 1
            tell_refused(self.client, scanner.topic, published.reason, self._refused)
        scanner.acknowledge(published.lsn, published.wait, published.reason)

    def _decide(self, operation: TopicOperation, topics: list[str], then: Callable[[], None]) -> None:
        """Do `then` once it can be said at once whether these may be used: now, as a rule."""
        assert self.client is not None
        if self._guarded and self._host.ask(self.client.identity, operation, topics):
            self._undecided = then
        else:
            then()

    def _on_auth(self, reason: int, properties: Properties) -> None:
        """Authenticate again, as the same user (mqtt5:4.12.1)."""
        if not self._authenticated:
            raise Violation("AUTH without an authentication method")  # mqtt5:4.12.0-6
        if reason == reasons.REAUTHENTICATE:
            self._authentication = Authentication(self._host.scram())
        elif reason != reasons.CONTINUE_AUTHENTICATION or self._authentication is None:
            raise Violation("AUTH that continues nothing")
        assert self._authentication is not None and self.client is not None
        try:
            # Input that follows in the same read must not wait: a login over the limit is refused here.
            if self._authentication.turn() > 0 and not self._host.local:
                raise MqttError("too many logins failed; connect again", reasons.SERVER_BUSY)
            answer = self._authentication.step(properties)
        except AuthenticationRefused as error:
            raise MqttError(error.message, reasons.NOT_AUTHORIZED) from None
        identity = self._authentication.identity
        if identity is not None:
            if identity.username != self.client.username:
                raise MqttError("authenticated again as another user", reasons.NOT_AUTHORIZED)
            self.client.belong(identity)
            answer = packets.encode_auth(reasons.SUCCESS, self._authentication.answer)
            self._authentication = None
        self._replies.send(answer)
