"""One MQTT connection: bytes in, bytes out, without I/O.

Three drivers. Bytes: `receive` scans a read; the kernel appends what is published and settles what is
acknowledged, and hands out everything else as events in exact order, which `Serving` handles. Calls: the
log says that positions are durable; what is delivered goes through a `Delivery`. Time: `deadline` and
`handle_deadline` for keep-alive.

    NEW ... (`Opening`) --accepted--> OPENING --CONNACK sent--> OPEN (`Serving`) --> CLOSED

Promises. Everything that is said to be durable is: CONNACK and SUBACK of a session that outlives its
connection wait in `Replies`, acknowledgements of messages in the scanner. A fault ends the connection with
the reason of `reasons` (5.0) or a plain close, and the will is published.

The host (the endpoint, or a test) writes `out` to the peer when told that it is dirty, and calls `lost`
once the connection is gone, for whatever reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.protocols.mqtt.clients.clients import Client, Clients
from penstock.protocols.mqtt.codec import _scan, packets, reasons
from penstock.protocols.mqtt.codec._scan import Scanner
from penstock.protocols.mqtt.codec.properties import NO_PROPERTIES
from penstock.protocols.mqtt.codec.reason_strings import ReasonStrings, refusal
from penstock.protocols.mqtt.codec.reasons import MqttError, Violation
from penstock.protocols.mqtt.delivery.delivery import Delivery
from penstock.protocols.mqtt.options import TOPIC_LEVELS_MAX, MqttOptions
from penstock.protocols.mqtt.session.connecting import Accepted
from penstock.protocols.mqtt.session.host import Host
from penstock.protocols.mqtt.session.opening import State
from penstock.protocols.mqtt.session.serving import Serving
from penstock.router.errors import LimitReached
from penstock.router.limits.token_buckets import Bucket

if TYPE_CHECKING:
    from penstock.protocols.mqtt.codec.properties import Properties
    from penstock.protocols.mqtt.publishing.sys_topics import Counts
    from penstock.router.authorization.identity import Identity
    from penstock.router.vhost.vhost import Vhost

__all__ = ["Session", "State"]

_ANSWERS_MAX: Final = 65536
"""Answers that wait for the disk; above it the connection is not read."""


class Session(Serving):
    """One connection of one client."""

    keep_alive_s = 0.0
    _awaited_written = 0
    _awaited_synced = 0
    _units = False
    _stops_publishes = False
    _rates: tuple[tuple[Bucket, bool], ...] = ()
    """The rates that the client is held to; True: a bucket of messages, else of bytes."""
    _published = 0
    _connect_properties: Properties = NO_PROPERTIES

    def __init__(self, host: Host, clients: Clients, options: MqttOptions) -> None:
        super().__init__(host, clients, options)
        self._broker = clients.broker
        self._log = clients.log

    # Bytes

    def receive(self, data: bytearray, size: int, now: float) -> int:
        """Handle data[0:size] at `now` (seconds, any clock that only rises).

        Returns how many bytes are done with; give the rest again with what comes next. Never raises for
        what a peer can send. Then write `out` and look at `want`.
        """
        self._last_input = now
        self.want = 0
        if self._undecided is not None:
            return 0
        at = 0
        if not self._connected:
            at = self._receive_connect(data, size)
            if not self._connected:
                return at
        scanner = self._scanner
        assert scanner is not None and self.client is not None
        while True:
            if self._units:
                with self._log.unit():
                    done = self._events(data, size, scanner.scan(data, at, size))
                    self._save()
            else:
                code = scanner.begin(data, at, size)
                if code == _scan.MORE and scanner.quiet:
                    self.want = scanner.want
                    return scanner.at
                done = self._events(data, size, code)
                self._save()
            at = scanner.at
            if done or self._closed:
                break
            self._units = scanner.unit = True  # the first QoS 2 message of a session that is durable
        if self._closed:
            return size
        self._after_scan(scanner)
        return at

    @property
    def quick(self) -> Scanner | None:
        """The scanner that may take the next read, as far as nobody else has to see it."""
        ordinary = self.state is State.OPEN and not (self._units or self._guarded or self._rates)
        return self._scanner if ordinary else None

    def answer(self) -> None:
        """Take up the answers to what the quick reader read."""
        if self._scanner is not None and not self._closed:
            self._after_scan(self._scanner)

    def _events(self, data: bytearray, size: int, code: int) -> bool:
        """Handle what the scanner stopped at, `code`, and scan on to the end.

        False when the rest must be scanned inside an atomic unit.
        """
        scanner = self._scanner
        assert scanner is not None
        while True:
            if code == _scan.MORE:
                self.want = scanner.want
                return True
            if code == _scan.UNIT:
                return False
            try:
                if code == _scan.FAULT:
                    raise MqttError(scanner.complaint, scanner.fault)
                part = bytes(memoryview(data)[scanner.start : scanner.stop])
                if code == _scan.PACKET:
                    self._on_packet(scanner.kind, scanner.flags, part)
                else:
                    self._on_publish(scanner, code, part)
            except MqttError as error:
                self._fail(error)
            if self._closed or self._undecided is not None:
                return True
            code = scanner.scan(data, scanner.at, size)

    def _save(self) -> None:
        """Put what the scan changed of the packet ids, and say what its answers wait for."""
        client, scanner = self.client, self._scanner
        if client is None or scanner is None or not client.persistent:
            return
        ids = client.ids
        if ids.received.changed:
            self._clients.save_received(client)
        if ids.inflight.exact_changed:
            self._clients.save_out(client)
        elif ids.inflight.changed:
            self._clients.mark_dirty(client)
        if scanner.unstamped:
            scanner.stamp(client.row_lsn)

    def _after_scan(self, scanner: Scanner) -> None:
        """Send the answers that wait for nothing, register for what the others wait for, use freed credit."""
        self._release()
        if scanner.waiting:
            self._await(scanner)
        client = self.client
        assert client is not None
        ids = client.ids
        if ids.inflight.take_freed():
            for token in ids.inflight.take_done_tokens():
                ids.tokens.pop(token, None)
            if self._delivery is not None:
                self._delivery.credit_gained()
        if scanner.waiting > _ANSWERS_MAX:
            self._host.pause_reading("answers")
        self._host.dirty()

    def _await(self, scanner: Scanner) -> None:
        if scanner.await_synced > self._awaited_synced:
            self._awaited_synced = scanner.await_synced
            self._host.await_synced(scanner.await_synced)
        if scanner.await_written > self._awaited_written:
            self._awaited_written = scanner.await_written
            self._host.await_written(scanner.await_written)

    def _release(self) -> None:
        """Send the answers whose turn has come; none before CONNACK."""
        scanner = self._scanner
        if scanner is not None and self.state is State.OPEN and scanner.waiting:
            scanner.release(self._log.written_lsn, self._log.synced_lsn, self._host.out)
            if scanner.waiting < _ANSWERS_MAX // 2:
                self._host.resume_reading("answers")

    @property
    def _connected(self) -> bool:
        return self.state in (State.OPENING, State.OPEN)

    # CONNECT accepted

    def _open(self, connect: packets.Connect, accepted: Accepted, identity: Identity) -> None:
        client = self.client = accepted.client
        try:
            self._broker.connections.enter(self)
        except LimitReached as error:
            if not accepted.session_present:
                self._clients.end(client)
            self.client = None
            self._host.out.write(refusal(connect, reasons.QUOTA_EXCEEDED, error.message))
            self._end(f"CONNECT refused: {error.message}")
            return
        self.will = connect.will
        self.keep_alive_s = float(accepted.keep_alive_s)
        properties = connect.properties
        self._words = ReasonStrings(connect.version, properties)
        self._max_packet = properties.get("maximum_packet_size", self._max_packet)
        ids = client.ids
        v5 = connect.version == packets.MQTT_5
        options = self._options
        scanner = Scanner(self._log.appender, accepted.table, ids.inflight, ids.received, connect.version)
        scanner.max_packet = options.max_packet_bytes
        # 3.x has no word for a receive maximum, so its clients cannot be held to one.
        scanner.receive_maximum = options.receive_maximum if v5 else 65535
        scanner.alias_maximum = options.topic_alias_maximum if v5 else 0
        scanner.max_levels = TOPIC_LEVELS_MAX
        scanner.persistent = client.persistent
        scanner.stop_publishes = self._stops_publishes
        scanner.origin = client.number
        if v5:
            scanner.texts = self._words.acknowledgements()
        self._scanner = scanner
        if options.max_message_rate:
            self._rates = ((Bucket(options.max_message_rate, self._last_input), True),)
        if options.max_byte_rate:
            self._rates += ((Bucket(options.max_byte_rate, self._last_input), False),)
        client.connection = self
        self._clients.connected(client, identity, accepted.expiry_s)
        # Messages of QoS 0 that came while the client was away are not kept for it, unless that is asked for.
        if client.own_queue is not None:
            away = accepted.session_present and not options.queue_qos0_messages
            self._deliver_to(client, properties, self._log.appender.next_lsn if away else 0)
        else:
            self._connect_properties = properties
        self.state = State.OPENING
        self._host.opened(client.username, client.client_id, connect.version)
        self._replies.send(accepted.connack, client.row_lsn, self._opened)

    def _deliver_to(self, client: Client, properties: Properties, skip_qos0_before: int) -> Delivery:
        """Begin to deliver: to a session that has a queue. `properties` are those of CONNECT."""
        assert self._scanner is not None
        client.queue.cursor.skip_transient_until = skip_qos0_before
        self._delivery = Delivery(
            self._host,
            self._clients,
            client,
            self.version,
            properties,
            window=min(properties.get("receive_maximum", 65535), self._options.max_inflight),
            skip_qos0_before=skip_qos0_before,
            send_pubrels=self._send_pubrels,
            cancelled=self._cancelled,
        )
        self._scanner.push_pubrels(self._delivery.released)
        if self._scanner.unstamped:
            self._scanner.stamp(client.row_lsn)
        return self._delivery

    def _delivering(self, client: Client) -> Delivery:
        if self._delivery is not None:
            return self._delivery
        # The first subscription of a client that was taken for one that only publishes.
        self._clients.give_queue(client)
        delivery = self._deliver_to(client, self._connect_properties, 0)
        if self.state is State.OPEN:
            delivery.start()
        return delivery

    def _opened(self) -> None:
        """CONNACK has left: deliveries and answers may follow."""
        self.state = State.OPEN
        assert self._scanner is not None and self.client is not None
        self.client.promised = True
        if self._scanner.waiting:
            self._await(self._scanner)
            self._release()
        if self._delivery is not None:
            self._delivery.start()

    # Decisions

    def decided(self) -> None:
        """The host has decided. Then give `receive` what it left."""
        then, self._undecided = self._undecided, None
        scanner = self._scanner
        if then is None or scanner is None or self._closed:
            return
        with self._log.unit():
            try:
                then()
            except MqttError as error:
                self._fail(error)
            self._save()
        if not self._closed:
            self._after_scan(scanner)

    # The disk

    def durable(self, ok: bool) -> None:
        """A position that was awaited is reached; not `ok`: the log failed."""
        if self.state is State.CLOSED:
            return
        if not ok:
            self.force_close("the log failed", reasons.UNSPECIFIED)
            return
        self._replies.release()
        self._release()
        if self._delivery is not None:
            self._delivery.release()
        self._host.dirty()

    def writable(self) -> None:
        """There is room for output again."""
        if self._delivery is not None:
            self._delivery.credit_gained()

    def send_again(self) -> None:
        """Messages of a shared subscription under way to this client can be sent again."""
        if self._delivery is not None:
            self._delivery.pump_shared()

    def _send_pubrels(self, packet_ids: list[int]) -> None:
        """The messages of these ids will not be sent again."""
        assert self.client is not None and self._scanner is not None
        self._scanner.push_pubrels(packet_ids)
        self._scanner.stamp(self.client.row_lsn)
        self._await(self._scanner)
        self._release()

    # Time

    def deadline(self) -> float | None:
        """When `handle_deadline` is to be called, on the clock of `receive`; None = never."""
        if self.keep_alive_s and self.state in (State.OPENING, State.OPEN):
            return self._last_input + 1.5 * self.keep_alive_s
        return None

    def handle_deadline(self, now: float) -> None:
        """Close when nothing came for one and a half keep-alive times (mqtt5:3.1.2-22, mqtt311:3.1.2-24)."""
        due = self.deadline()
        if due is not None and due <= now:
            self.force_close("the keep-alive time is over", reasons.KEEP_ALIVE_TIMEOUT)

    def alive(self, now: float) -> None:
        """The connection is not being read, by our own choice: its silence does not count."""
        self._last_input = now

    def spent(self, size: int, now: float) -> float:
        """`receive` took so many bytes: seconds in which nothing more is to be read, because of the rates
        that a client is held to; a 5.0 client is disconnected instead (mqtt5:2.4, 0x96).
        """
        if not self._rates or self._scanner is None or self._closed:
            return 0.0
        published, self._published = self._published, self._scanner.published
        wait_s = max(
            bucket.take(self._published - published if counts else size, now)
            for bucket, counts in self._rates
        )
        if wait_s and self.version == packets.MQTT_5:
            self._fail(Violation("more messages or bytes than the rate", reasons.MESSAGE_RATE_TOO_HIGH))
        return wait_s

    def stop_publishes(self, stop: bool) -> bool:
        """Handle only what is in front of the next PUBLISH, or all again; True: a PUBLISH waits."""
        self._stops_publishes = stop
        scanner = self._scanner
        if scanner is None:
            return False
        scanner.stop_publishes = stop
        return stop and scanner.stopped

    # Endings

    def taken_over(self) -> None:
        """Another connection of the same client id takes the session (mqtt5:3.1.4-3)."""
        self.force_close("another connection took over the session", reasons.SESSION_TAKEN_OVER)

    def _cancelled(self, reason: str) -> None:
        """The session is gone: somebody deleted it."""
        if self.state is not State.CLOSED:
            self.force_close(reason)

    # As a member of the vhost

    @property
    def identity(self) -> Identity:
        """The client that is connected."""
        assert self.client is not None
        return self.client.identity

    @property
    def vhost(self) -> Vhost:
        """The vhost it is in."""
        assert self.client is not None
        return self.client.vhost

    @property
    def channel_count(self) -> int:
        """MQTT has none."""
        return 0

    def permissions_changed(self) -> None:
        """`Clients` looks after all sessions, connected or not."""

    def subscriptions_changed(self) -> None:
        """Some were taken back."""
        if self._delivery is not None:
            self._delivery.subscribed()

    def force_close(self, reason: str, code: int = reasons.ADMINISTRATIVE_ACTION) -> None:
        """Say goodbye, and why, and close."""
        self._say_goodbye(code, reason)
        self._end(reason)

    def shutdown(self) -> None:
        """The gateway stops."""
        why = "the gateway stops"
        if self._options.server_reference:
            reference = self._options.server_reference
            self._say_goodbye(reasons.USE_ANOTHER_SERVER, why, server_reference=reference)
        else:
            self._say_goodbye(reasons.SHUTTING_DOWN, why)
        self._end(why)

    def lost(self) -> None:
        """The connection is gone. Idempotent."""
        if self.state is not State.CLOSED:
            self.state = State.CLOSED
            self._detach()

    def let_go(self) -> None:
        """Break the cycles, when all is counted; the host has let go of the session."""
        self._undecided = None
        if self._delivery is not None:
            self._delivery.let_go()
            self._delivery = None

    def _fail(self, error: MqttError) -> None:
        """A fault of the peer."""
        self.force_close(error.message, error.reason)

    def _say_goodbye(self, reason: int, why: str, **properties: str) -> None:
        """DISCONNECT, to those who know it and only after CONNACK."""
        if self.version == packets.MQTT_5 and self.state is State.OPEN and self._words is not None:
            self._host.out.write(self._words.disconnect(reason, why, **properties))

    def _end(self, reason: str) -> None:
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self._detach()
        self._host.end(reason)

    def _detach(self) -> None:
        """Leave the session to whoever comes next."""
        self._replies.clear()
        client, self.client = self.client, None
        if client is None or client.connection is not self:
            return
        self._broker.connections.leave(self)
        if self._delivery is not None:
            self._delivery.stop()
            if not self._options.queue_qos0_messages:
                client.queue.cursor.skip_transient_until = 2**64 - 1  # nor does it keep the log meanwhile
        client.ids.inflight.suspend()
        will, self.will = self.will, None
        self._clients.disconnected(client, will)

    def add_to(self, counts: Counts) -> None:
        """Count what this connection has counted."""
        scanner, delivery = self._scanner, self._delivery
        if scanner is not None:
            counts.packets_received += scanner.published + scanner.acknowledged + self._packets
            counts.packets_sent += scanner.answered + self._replies.sent
            counts.published += scanner.published
            counts.published_bytes += scanner.published_bytes
        if delivery is not None:
            counts.packets_sent += delivery.delivered
            counts.delivered += delivery.delivered
            counts.delivered_bytes += delivery.delivered_bytes
            counts.dropped += delivery.skipped

    @property
    def completed(self) -> int:
        """Deliveries of QoS 1 and 2 that the client has acknowledged to the end."""
        return self._scanner.completed if self._scanner is not None else 0

    def counts(self) -> tuple[int, int]:
        """Messages received and delivered on this connection."""
        received = self._scanner.published if self._scanner is not None else 0
        return received, self._delivery.delivered if self._delivery is not None else 0
