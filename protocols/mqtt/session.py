"""One MQTT connection: bytes in, bytes out, without I/O.

Three drivers. Bytes: `receive` scans a read; the kernel appends what is published and settles what is
acknowledged, and hands out everything else as events in exact order, which are handled here. Calls: the
queue of the client's session delivers through this object (it is an `Outlet`), the log says that positions
are durable. Time: `deadline` and `handle_deadline` for keep-alive.

    NEW --CONNECT--> LOGIN --accepted--> OPENING --CONNACK sent--> OPEN --> CLOSED
     |                 |                                            |
     +-- anything else, refusal -----------------------------------------> CLOSED

Promises. What is said to be durable is: replies that wait for the disk (CONNACK and SUBACK of a session that
outlives its connection) stand in one queue with those behind them, so replies leave in order;
acknowledgements of messages have their own queue in the scanner. A fault ends the connection with the
reason of `reasons` (5.0) or a plain close, and the will is published.

The host (the endpoint, or a test) writes `out` to the peer when told that it is dirty, and calls `lost`
once the connection is gone, for whatever reason.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from penstock.protocols.mqtt import _scan, packets, reasons
from penstock.protocols.mqtt._deliver import Choice, Deliverer
from penstock.protocols.mqtt._scan import Scanner
from penstock.protocols.mqtt.clients import Client, Clients
from penstock.protocols.mqtt.connecting import Accepted, accept, login_of
from penstock.protocols.mqtt.options import MqttOptions
from penstock.protocols.mqtt.publishing import publish_here, store_retained
from penstock.protocols.mqtt.reasons import ConnectRefused, MqttError, Violation
from penstock.protocols.mqtt.retained import RetainedDelivery
from penstock.protocols.mqtt.subscribing import choose, subscribe, unsubscribe
from penstock.protocols.outbuffer import OutBuffer
from penstock.protocols.translate import mqtt5_from_amqp091

if TYPE_CHECKING:
    from penstock.router.identity import Identity
    from penstock.subscriptions._cursor import Cursor

__all__ = ["Host", "Session", "State"]

_ANSWERS_MAX: Final = 65536
"""Answers that wait for the disk; above it the connection is not read."""
_PRE_CONNECT_BYTES: Final = 65536
"""The largest CONNECT: what a peer may make us hold before it is logged in."""
_DELIVER_MAX: Final = 1024
"""Messages one delivery takes when no packet id limits it."""


class Host(Protocol):
    """What a session needs of its connection."""

    @property
    def out(self) -> OutBuffer:
        """What is sent at the end of the tick."""

    def dirty(self) -> None:
        """`out` has something, or the log has: have a turn run."""

    def await_written(self, lsn: int) -> None:
        """Have `durable` called when everything up to `lsn` is written."""

    def await_synced(self, lsn: int) -> None:
        """The same for synced."""

    def room(self) -> int:
        """Bytes that may be encoded now; 0 = wait for `writable`."""

    def hold(self, reason: str) -> None:
        """Stop reading until `release`."""

    def release(self, reason: str) -> None:
        """Go on reading."""

    def login(self, user_name: str | None, password: bytes | None) -> None:
        """Verify, then call `logged_in` or `refused`. Nothing is read meanwhile."""

    def opened(self, user: str, client_id: str, version: int) -> None:
        """The client is connected."""

    def deadline_changed(self) -> None:
        """Ask for `deadline` again."""

    def end(self, reason: str) -> None:
        """Send what is in `out`, then close."""


class State(Enum):
    """Where a connection is; see the module's text."""

    NEW = "waiting for CONNECT"
    LOGIN = "verifying the login"
    OPENING = "waiting for the session's row to be durable"
    OPEN = "open"
    CLOSED = "closed"


class Session:
    """One connection of one client."""

    priority = 0

    def __init__(self, host: Host, clients: Clients, options: MqttOptions) -> None:
        self.state = State.NEW
        self.will: packets.Will | None = None
        """What is published when the connection ends otherwise than by DISCONNECT."""
        self.client: Client | None = None
        self.version = 0
        self.keep_alive_s = 0.0
        self.problem_information = True
        self.want = 0
        """Size of the incomplete packet in front of what `receive` left; 0 = not known."""
        self._host = host
        self._clients = clients
        self._broker = clients.broker
        self._log = clients.log
        self._options = options
        self._connect: packets.Connect | None = None
        self._scanner: Scanner | None = None
        self._deliverer: Deliverer | None = None
        self._retained: RetainedDelivery | None = None
        self._replies: deque[tuple[int, bytes, Callable[[], None] | None]] = deque()
        self._held: deque[tuple[int, bytes]] = deque()
        self._awaited_written = self._awaited_synced = 0
        self._units = False
        self._last_input = 0.0
        self._qos_above_0 = False

    # Bytes

    def receive(self, data: bytearray, size: int, now: float) -> int:
        """Handle data[0:size] at `now` (seconds, any clock that only rises).

        Returns how many bytes are done with; give the rest again with what comes next. Never raises for
        what a peer can send. Then write `out` and look at `want`.
        """
        self._last_input = now
        self.want = 0
        at = 0
        if not self._connected:
            at = self._receive_connect(data, size)
            if not self._connected:
                return at
        while True:
            scanner = self._scanner
            assert scanner is not None
            if self._units:
                with self._log.unit():
                    done = self._scan(data, at, size)
                    self._save()
            else:
                done = self._scan(data, at, size)
                self._save()
            at = scanner.at
            if done or self._closed:
                break
            self._units = scanner.unit = True  # the first QoS 2 message of a session that is durable
        if self._closed:
            return size
        self._after_scan(scanner)
        return at

    def _scan(self, data: bytearray, at: int, size: int) -> bool:
        """Scan to the end; False when the rest must be scanned inside an atomic unit."""
        scanner = self._scanner
        assert scanner is not None and self.client is not None
        scanner.origin = self.client.number if self._broker.no_local_sessions else 0
        while not self._closed:
            code = scanner.scan(data, at, size)
            at = scanner.at
            if code == _scan.MORE:
                self.want = scanner.want
                return True
            if code == _scan.UNIT:
                return False
            if code == _scan.FAULT:
                self._fail(MqttError(scanner.complaint, scanner.fault))
            elif code == _scan.PACKET:
                body = bytes(memoryview(data)[scanner.start : scanner.stop])
                try:
                    self._on_packet(scanner.kind, scanner.flags, body)
                except MqttError as error:
                    self._fail(error)
            else:
                payload = bytes(memoryview(data)[scanner.start : scanner.stop])
                try:
                    self._on_publish(scanner, code, payload)
                except MqttError as error:
                    self._fail(error)
        return True

    def _save(self) -> None:
        """Put what the scan changed of the packet ids, and say what its answers wait for."""
        client, scanner = self.client, self._scanner
        if client is None or scanner is None or not client.persistent:
            return
        if client.received.changed:
            self._clients.save_received(client)
        if client.inflight.exact_changed:
            self._clients.save_out(client)
        elif client.inflight.changed:
            self._clients.soil(client)
        if scanner.unstamped:
            scanner.stamp(client.row_lsn)

    def _after_scan(self, scanner: Scanner) -> None:
        """Register for what the answers wait for, send those that wait for nothing, use freed credit."""
        self._await(scanner)
        self._release()
        client = self.client
        assert client is not None
        if client.inflight.take_freed():
            for token in client.inflight.take_done_tokens():
                client.tokens.pop(token, None)
            client.queue.credit_gained()
            self._pump_retained()
        if scanner.waiting > _ANSWERS_MAX:
            self._host.hold("answers")
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
                self._host.release("answers")

    @property
    def _connected(self) -> bool:
        return self.state in (State.OPENING, State.OPEN)

    @property
    def _closed(self) -> bool:
        return self.state is State.CLOSED

    # CONNECT

    def _receive_connect(self, data: bytearray, size: int) -> int:
        if self.state is not State.NEW:
            return 0 if self.state is State.LOGIN else size
        head = _read_head(data, size)
        if head is None:
            return 0
        kind, flags, start, stop = head
        if kind != packets.CONNECT or start < 0 or stop > _PRE_CONNECT_BYTES:
            self._end("the first packet was not CONNECT")  # mqtt5:3.1.0-1: close, no bytes
            return size
        if stop > size:
            self.want = stop
            return 0
        try:
            connect = packets.decode_connect(bytes(memoryview(data)[start:stop]), flags)
            self._connect = connect
            self.version = connect.version
            login = login_of(connect)
        except ConnectRefused as refused:
            self._host.out.write(refused.connack)
            self._end(f"CONNECT refused: {refused.message}")
            return size
        self.state = State.LOGIN
        self._host.login(*login)
        return size if self._closed else stop

    def logged_in(self, identity: Identity) -> None:
        """The login was right: open the session. Called by the host after `login`."""
        connect = self._connect
        if self.state is not State.LOGIN or connect is None:
            return
        self._connect = None
        try:
            accepted = accept(self._clients, self._options, connect, identity, self)
        except ConnectRefused as refused:
            self._host.out.write(refused.connack)
            self._end(f"CONNECT refused: {refused.message}")
            return
        self._open(connect, accepted, identity)

    def refused(self, reason: int, why: str) -> None:
        """The login was wrong. Called by the host after `login`."""
        if self.state is State.LOGIN:
            self._host.out.write(packets.encode_refusal(self.version, reason))
            self._end(f"CONNECT refused: {why}")

    def _open(self, connect: packets.Connect, accepted: Accepted, identity: Identity) -> None:
        client = self.client = accepted.client
        self.will = connect.will
        self.keep_alive_s = float(accepted.keep_alive_s)
        properties = connect.properties
        self.problem_information = bool(properties.get("request_problem_information", 1))
        v5 = connect.version == packets.MQTT_5
        options = self._options
        scanner = Scanner(
            self._log.appender, accepted.table, client.inflight, client.received, connect.version
        )
        scanner.max_packet = options.max_packet_bytes
        # 3.x has no word for a receive maximum, so its clients cannot be held to one.
        scanner.receive_maximum = options.receive_maximum if v5 else 65535
        scanner.alias_maximum = options.topic_alias_maximum if v5 else 0
        scanner.max_levels = options.max_topic_levels
        scanner.persistent = client.persistent
        self._scanner = scanner
        deliverer = Deliverer(
            client.inflight, self._host.out, connect.version, self._choose, mqtt5_from_amqp091
        )
        deliverer.max_packet = properties.get("maximum_packet_size", 268_435_455)
        deliverer.alias_maximum = properties.get("topic_alias_maximum", 0)
        deliverer.origin = client.number
        deliverer.persistent = client.persistent
        # What was published at QoS 0 while the client was away is not kept for it.
        deliverer.skip_qos0_before = self._log.appender.next_lsn if accepted.session_present else 0
        client.queue.cursor.skip_transient_until = deliverer.skip_qos0_before
        self._deliverer = deliverer
        client.connection = self
        self._clients.connected(client, identity, accepted.expiry_s)
        window = min(properties.get("receive_maximum", 65535), options.max_inflight)
        released, again = client.inflight.resume(window)
        self._retained = RetainedDelivery(client, deliverer, again)
        self._count_qos()
        scanner.push_pubrels(released)
        if scanner.unstamped:
            scanner.stamp(client.row_lsn)
        self.state = State.OPENING
        self._host.opened(client.identity.username, client.client_id, connect.version)
        self._reply(accepted.connack, client.row_lsn, self._opened)
        self._host.deadline_changed()

    def _opened(self) -> None:
        """CONNACK has left: deliveries and answers may follow."""
        self.state = State.OPEN
        assert self.client is not None and self._scanner is not None
        self.client.queue.attach(self)
        self._await(self._scanner)
        self._release()
        self._pump_retained()

    # Packets

    def _on_packet(self, kind: int, flags: int, body: bytes) -> None:
        if kind == packets.PINGREQ:
            if flags or body:
                raise reasons.Malformed("PINGREQ with flags or a body")
            self._reply(packets.PINGRESP, 0)
        elif kind == packets.SUBSCRIBE:
            self._on_subscribe(packets.decode_subscribe(body, flags, self.version))
        elif kind == packets.UNSUBSCRIBE:
            self._on_unsubscribe(packets.decode_unsubscribe(body, flags, self.version))
        elif kind == packets.DISCONNECT:
            self._on_disconnect(packets.decode_disconnect(body, flags, self.version))
        elif kind == packets.CONNECT:
            raise Violation("a second CONNECT")  # mqtt5:3.1.0-2
        elif kind == packets.AUTH and self.version == packets.MQTT_5:
            packets.decode_auth(body, flags)
            raise Violation("AUTH without an authentication method")  # mqtt5:4.12.0-6
        else:
            raise Violation("a packet that only servers send")

    def _on_subscribe(self, packet: packets.Subscribe) -> None:
        assert self.client is not None and self._deliverer is not None
        results, wanted, lsn = subscribe(self._clients, self._options, self.client, packet, self.version)
        self._deliverer.forget_choices()
        self._count_qos()
        retained = self._retained
        assert retained is not None

        def granted() -> None:
            for subscription in wanted:
                retained.add(subscription, self._log.now_ms())
            self._pump_retained()

        suback = packets.encode_suback(self.version, packet.packet_id, results, {})
        self._reply(suback, lsn, granted if wanted else None)

    def _on_unsubscribe(self, packet: packets.Unsubscribe) -> None:
        assert self.client is not None and self._deliverer is not None
        results, lsn = unsubscribe(self._clients, self.client, packet)
        self._deliverer.forget_choices()
        self._count_qos()
        self._reply(packets.encode_unsuback(self.version, packet.packet_id, results), lsn)

    def _on_disconnect(self, packet: packets.Disconnect) -> None:
        assert self.client is not None
        if "session_expiry_s" in packet.properties:
            expiry_s = min(packet.properties["session_expiry_s"], self._options.session_expiry_max_s)
            if expiry_s and not self.client.expiry_s:
                raise Violation("a session expiry in DISCONNECT after none in CONNECT")  # mqtt5:3.14.2-2
            self.client.expiry_s = expiry_s
        if packet.reason != reasons.DISCONNECT_WITH_WILL:
            self.will = None
        self._end("the client disconnected")

    def _on_publish(self, scanner: Scanner, code: int, payload: bytes) -> None:
        """A PUBLISH that the kernel left to us: retained, or one that cannot go the straight way."""
        assert self.client is not None
        if code == _scan.RETAIN:
            lsn = store_retained(
                self.client.vhost, scanner.topic, scanner.block, payload, scanner.qos, scanner.ttl_ms
            )
            if lsn:
                scanner.raise_last(lsn)
            return
        published = publish_here(self.client, scanner, payload)
        scanner.acknowledge(published.lsn, published.wait, published.reason)

    # Deliveries: the outlet of the client's queue

    def credit(self) -> int:
        """Messages that may be delivered now."""
        if self.state is not State.OPEN or self._host.room() <= 0:
            return 0
        if not self._qos_above_0:
            return _DELIVER_MAX
        assert self.client is not None
        inflight = self.client.inflight
        return min(max(inflight.window - inflight.sent, 0), _DELIVER_MAX)

    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        """Encode items of the cursor; how many were taken."""
        deliverer, client = self._deliverer, self.client
        assert deliverer is not None and client is not None
        room = self._host.room()
        if room <= 0:
            return 0
        took = deliverer.deliver(cursor, first, step, room, self._log.now_ms())
        self._after_delivery(deliverer, client)
        return took

    def _after_delivery(self, deliverer: Deliverer, client: Client) -> None:
        released = deliverer.take_pubrels()
        if released:
            assert self._scanner is not None
            self._scanner.push_pubrels(released)
        if client.inflight.changed and client.persistent:
            if client.inflight.exact_changed:
                lsn = self._clients.save_out(client)
                if deliverer.held.size:
                    self._held.append((lsn, deliverer.held.take()))
                    self._host.await_synced(lsn)
            else:
                self._clients.soil(client)
        if released:
            assert self._scanner is not None
            self._scanner.stamp(client.row_lsn)
            self._await(self._scanner)
            self._release()
        self._host.dirty()

    def cancelled(self, reason: str) -> None:
        """The queue is gone: somebody deleted it."""
        if self.state is not State.CLOSED:
            self._say_goodbye(reasons.ADMINISTRATIVE_ACTION)
            self._end(reason)

    def _choose(self, tags: tuple[int, ...]) -> Choice | None:
        assert self.client is not None
        return choose(self.client, tags)

    def _count_qos(self) -> None:
        assert self.client is not None
        self._qos_above_0 = any(s.qos for s in self.client.subscriptions.values())

    def _pump_retained(self) -> None:
        if self._retained is not None and self.state is State.OPEN and self._retained.waiting:
            self._retained.pump(self._host.room, self._log.now_ms())
            self._host.dirty()

    # Replies

    def _reply(self, data: bytes, lsn: int, then: Callable[[], None] | None = None) -> None:
        """Send `data` when `lsn` is durable and every reply before it has left; after it do `then`."""
        if not self._replies and lsn <= self._log.synced_lsn:
            self._host.out.write(data)
            self._host.dirty()
            if then is not None:
                then()
            return
        self._replies.append((lsn, data, then))
        if lsn > self._awaited_synced:
            self._awaited_synced = lsn
            self._host.await_synced(lsn)
        self._host.dirty()

    def durable(self, ok: bool) -> None:
        """A position that was awaited is reached; not `ok`: the log failed."""
        if self.state is State.CLOSED:
            return
        if not ok:
            self._say_goodbye(reasons.SERVER_UNAVAILABLE if self.version != 5 else reasons.UNSPECIFIED)
            self._end("the log failed")
            return
        synced = self._log.synced_lsn
        out = self._host.out
        while self._replies and self._replies[0][0] <= synced:
            _, data, then = self._replies.popleft()
            out.write(data)
            if then is not None:
                then()
        self._release()
        while self._held and self._held[0][0] <= synced:
            out.write(self._held.popleft()[1])
        self._host.dirty()

    def writable(self) -> None:
        """There is room for output again."""
        if self.state is State.OPEN:
            assert self.client is not None
            self._pump_retained()
            self.client.queue.credit_gained()

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
            self._say_goodbye(reasons.KEEP_ALIVE_TIMEOUT)
            self._end("the keep-alive time is over")

    def alive(self, now: float) -> None:
        """The connection is not being read, by our own choice: its silence does not count."""
        self._last_input = now

    @property
    def publishes(self) -> bool:
        """It has published something: it is among those that wait when the disk does not keep up."""
        return self._scanner is not None and self._scanner.published > 0

    # Endings

    def taken_over(self) -> None:
        """Another connection of the same client id takes the session (mqtt5:3.1.4-3)."""
        self._say_goodbye(reasons.SESSION_TAKEN_OVER)
        self._end("another connection took over the session")

    def shutdown(self) -> None:
        """The gateway stops."""
        self._say_goodbye(reasons.SHUTTING_DOWN)
        self._end("the gateway stops")

    def lost(self) -> None:
        """The connection is gone. Idempotent."""
        if self.state is not State.CLOSED:
            self.state = State.CLOSED
            self._detach()

    def _fail(self, error: MqttError) -> None:
        """A fault of the peer."""
        self._say_goodbye(error.reason)
        self._end(error.message)

    def _say_goodbye(self, reason: int) -> None:
        """DISCONNECT, to those who know it and only after CONNACK."""
        if self.version == packets.MQTT_5 and self.state is State.OPEN:
            self._host.out.write(packets.encode_disconnect(reason, {}))

    def _end(self, reason: str) -> None:
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self._detach()
        self._host.end(reason)

    def _detach(self) -> None:
        """Leave the session to whoever comes next."""
        self._replies.clear()
        self._held.clear()
        client, self.client = self.client, None
        if client is None or client.connection is not self:
            return
        client.queue.detach(self)
        client.queue.cursor.skip_transient_until = 2**64 - 1  # nor does it keep the log meanwhile
        client.inflight.suspend()
        will, self.will = self.will, None
        self._clients.disconnected(client, will)

    def counts(self) -> tuple[int, int]:
        """Messages received and delivered on this connection."""
        received = self._scanner.published if self._scanner is not None else 0
        return received, self._deliverer.delivered if self._deliverer is not None else 0


def _read_head(data: bytearray, size: int) -> tuple[int, int, int, int] | None:
    """(type, flags, start, stop) of the first packet; None = not there yet; start < 0: no packet."""
    value = 0
    for i in range(1, 5):
        if i >= size:
            return None if size < 5 else (0, 0, -1, 0)
        value |= (data[i] & 0x7F) << 7 * (i - 1)
        if data[i] < 0x80:
            minimal = data[i] or i == 1
            return data[0] >> 4, data[0] & 15, i + 1 if minimal else -1, i + 1 + value
    return 0, 0, -1, 0
