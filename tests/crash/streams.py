"""Publishers and consumers that live through crashes of the broker, one thread each, writing a `History`.

A stream is one publisher, one consumer, and what lies between: a durable queue with persistent, confirmed
messages (AMQP), or a topic and persistent sessions at QoS 1 or 2 (MQTT). Every part reconnects
on its own as soon as the broker is back. Publishers are bare clients, because they must know exactly what was
in flight; the AMQP one never sends a message twice, the MQTT one sends again what was not answered, as its
protocol demands. Consumers are pika and paho.
"""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
import traceback
from collections.abc import Callable

import paho.mqtt.client as mqtt
import pika
import pika.exceptions
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from pika.spec import Basic

from bench.load_amqp import Client, frame, method, short_string
from bench.load_mqtt import PACKET_IDS, PUBACK_BYTES, log_in, packet, utf8
from tests.crash.checker import History, make_body
from tests.support import paho_sockets

# pika tells every refused connection as an error; here they are expected.
logging.getLogger("pika").setLevel(logging.CRITICAL)

RECONNECT_PAUSE_S = 0.01
LIMIT_S = 60.0
"""For an answer that must come; a busy machine may take long, only a broken one takes longer."""
BACKLOG_MAX = 5000
"""A publisher waits while its consumer is this many messages behind, so that the drain at the end is short.
"""


class Stream:
    """The common part of all streams: a history, two threads, and a publisher that can be told to finish."""

    def __init__(self, name: str, port: int, *, exactly_once: bool = False, window: int = 200) -> None:
        self.name = name
        self.port = port
        self.window = window
        self.history = History(name, exactly_once=exactly_once)
        self.sessions_lost = 0
        """How often a session or queue that should have survived was gone."""
        self._written_off = 0
        """Messages that no longer hold the publisher back, because what held them is gone."""
        self.last_acked_at = 0.0
        self.last_received_at = 0.0
        self.failure = ""
        self._next = 0
        self._publishing = True
        self._running = True
        self._ready = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(run,), name=f"{name}-{run.__name__}", daemon=True)
            for run in (self._consume, self._publish)
        ]

    def start(self) -> None:
        """Start the consumer, wait until it is there, then start the publisher."""
        self._threads[0].start()
        if not self._ready.wait(LIMIT_S):
            raise TimeoutError(f"{self.name}: no consumer in {LIMIT_S} s {self.failure}")
        self._threads[1].start()

    def finish_publishing(self) -> None:
        """The publisher sends nothing new, waits for its answers (`LIMIT_S` at most), and ends."""
        self._publishing = False
        self._threads[1].join(2 * LIMIT_S)

    def stop(self) -> None:
        """End the consumer too."""
        self._publishing = self._running = False
        for thread in self._threads:
            thread.join(2 * LIMIT_S)

    @property
    def in_flight(self) -> int:
        """Messages sent on the present connection and not answered yet."""
        raise NotImplementedError

    def _publish(self) -> None:
        raise NotImplementedError

    def _consume(self) -> None:
        raise NotImplementedError

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except Exception:
            self.failure += traceback.format_exc()

    def _may_send(self, in_flight: int) -> bool:
        behind = self._behind() - self._written_off
        return self._publishing and in_flight < self.window and behind < BACKLOG_MAX

    def _behind(self) -> int:
        return len(self.history.attempts) - len(self.history.receipts)

    def _session_lost(self) -> None:
        """Count it; its backlog will not come, so the publisher must not wait for it."""
        self.sessions_lost += 1
        self._written_off = self._behind()

    def _take(self) -> tuple[int, bytes]:
        """The next message, entered as attempted."""
        sequence = self._next
        self._next += 1
        self.history.attempt(sequence, at=time.monotonic())
        return sequence, make_body(self.name, sequence)

    def _acked(self, sequence: int) -> None:
        self.last_acked_at = time.monotonic()
        self.history.ack(sequence, at=self.last_acked_at)

    def _received(self, body: bytes, *, flagged: bool) -> int | None:
        self.last_received_at = time.monotonic()
        return self.history.receive(body, flagged=flagged, at=self.last_received_at)


class AmqpStream(Stream):
    """A bare confirming publisher and a pika consumer on one durable queue."""

    _unconfirmed: dict[int, int]
    """Delivery tag -> sequence, on the present connection."""

    def __init__(self, name: str, port: int, *, window: int = 200) -> None:
        super().__init__(name, port, window=window)
        self._unconfirmed = {}
        self.source = name
        """The queue that is published to."""

    @property
    def in_flight(self) -> int:
        return len(self._unconfirmed)

    def prepare(self, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
        """Declare anything else that the stream needs before the first publish."""

    # Publishing

    def _publish(self) -> None:
        while self._publishing:
            self._unconfirmed = {}
            try:
                client = Client(self.port)
            except (OSError, EOFError):
                time.sleep(RECONNECT_PAUSE_S)
                continue
            try:
                client.declare(self.source, durable=True, passive=self.source != self.name)
                client.call(85, 10, b"\0", 11)
                self._publish_on(client)
            except (OSError, EOFError):
                continue
            finally:
                client.close()

    def _publish_on(self, client: Client) -> None:
        tag = 0
        answers = bytearray()
        deadline = None
        while self._publishing or self._unconfirmed:
            out = bytearray()
            while len(out) < 16384 and self._may_send(len(self._unconfirmed)):
                tag += 1
                sequence, body = self._take()
                self._unconfirmed[tag] = sequence
                out += method(1, 60, 40, b"\0\0" + short_string("") + short_string(self.source) + b"\0")
                out += frame(2, 1, struct.pack(">HHQHB", 60, 0, len(body), 0x1000, 2)) + frame(3, 1, body)
            if out:
                client.socket.settimeout(LIMIT_S)
                client.socket.sendall(out)
            if not self._publishing:
                deadline = deadline or time.monotonic() + LIMIT_S
                if time.monotonic() > deadline:
                    return
            client.socket.settimeout(0.005)
            try:
                data = client.socket.recv(65536)
            except TimeoutError:
                continue
            if not data:
                return
            answers += data
            self._read_answers(answers)

    def _read_answers(self, answers: bytearray) -> None:
        while len(answers) >= 7:
            kind, _, size = struct.unpack_from(">BHI", answers)
            if len(answers) < size + 8:
                return
            payload = bytes(answers[7 : 7 + size])
            del answers[: size + 8]
            if kind != 1:
                continue
            class_id, method_id = struct.unpack_from(">HH", payload)
            if class_id in (10, 20) and method_id in (40, 50):
                raise EOFError(f"closed by the broker: {payload!r}")
            if class_id == 10 and method_id in (60, 61):
                continue  # blocked and unblocked, on a disk that is short
            if class_id != 60 or method_id not in (80, 120):
                raise RuntimeError(f"unexpected method {class_id}.{method_id} for a publisher")
            tag, flags = struct.unpack_from(">QB", payload, 4)
            tags = [t for t in self._unconfirmed if t <= tag] if flags & 1 else [tag]
            for one in tags:
                sequence = self._unconfirmed.pop(one)
                if method_id == 80:
                    self._acked(sequence)
                else:
                    self.history.refused.add(sequence)

    # Consuming

    def _consume(self) -> None:
        parameters = pika.ConnectionParameters(
            "127.0.0.1", self.port, heartbeat=0, socket_timeout=30, stack_timeout=60
        )
        declared = False
        while self._running:
            try:
                connection = pika.BlockingConnection(parameters)
            except (pika.exceptions.AMQPError, OSError):
                time.sleep(RECONNECT_PAUSE_S)
                continue
            try:
                channel = connection.channel()
                try:
                    channel.queue_declare(self.name, durable=True, passive=declared)
                except pika.exceptions.ChannelClosedByBroker:
                    self._session_lost()
                    channel = connection.channel()
                    channel.queue_declare(self.name, durable=True)
                if not declared:
                    self.prepare(channel)
                declared = True
                channel.basic_qos(prefetch_count=500)
                self._consume_on(connection, channel)
                connection.close()
            except (pika.exceptions.AMQPError, OSError):
                continue

    def _consume_on(
        self,
        connection: pika.BlockingConnection,
        channel: pika.adapters.blocking_connection.BlockingChannel,
    ) -> None:
        unsettled: list[int] = []
        last_tag = 0

        def settle() -> None:
            if not unsettled:
                return
            channel.basic_ack(last_tag, multiple=True)
            now = time.monotonic()
            for sequence in unsettled:
                self.history.settled[sequence] = now
            unsettled.clear()

        def on_delivery(_: object, delivery: Basic.Deliver, __: object, body: bytes) -> None:
            nonlocal last_tag
            last_tag = delivery.delivery_tag
            sequence = self._received(body, flagged=delivery.redelivered)
            if sequence is not None:
                unsettled.append(sequence)
            if len(unsettled) >= 100:
                settle()

        channel.basic_consume(self.name, on_delivery)
        self._ready.set()
        while self._running:
            connection.process_data_events(time_limit=0.02)
            settle()


class DeadLetterStream(AmqpStream):
    """Publishes to a queue in which everything expires; its letters go through a queue so short that it
    refuses some of them, in which they expire too, to the one that is consumed.
    """

    def __init__(self, name: str, port: int) -> None:
        super().__init__(name, port)
        self.source = f"{name}-source"

    def prepare(self, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
        """The short queue between, and the source."""
        short = f"{self.name}-short"
        at_least_once = {
            "x-queue-type": "quorum",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-dead-letter-exchange": "",
        }
        for queue, letters, limit in ((short, self.name, 300), (self.source, short, 10**6)):
            arguments = {
                **at_least_once,
                "x-dead-letter-routing-key": letters,
                "x-max-length": limit,
                "x-message-ttl": 5,
            }
            channel.queue_declare(queue, durable=True, arguments=arguments)


class MqttStream(Stream):
    """A bare publisher and a paho subscriber with persistent sessions, at QoS 1 or 2 on both sides.

    The publisher is not paho, because paho 2.2 begins a QoS 2 message anew when the first attempts to
    reconnect fail after its PUBREL was sent, which no broker can make exactly once.
    """

    def __init__(
        self,
        name: str,
        port: int,
        qos: int,
        *,
        window: int = 100,
        subscriber_port: int | None = None,
        topic: str | None = None,
    ) -> None:
        """`subscriber_port`: of another broker, to which messages are brought."""
        super().__init__(name, port, exactly_once=qos == 2, window=window)
        self.qos = qos
        self._subscriber_port = subscriber_port or port
        self._topic = topic or f"crash/{name}"
        self._unsettled: list[int] = []
        """Received in this turn of the subscriber; paho acknowledges after its callback."""
        self._under_way: dict[int, tuple[int, bytes]] = {}
        """Packet id -> (sequence, body), in the order of publishing; a body of b"" waits for PUBCOMP."""

    @property
    def in_flight(self) -> int:
        return len(self._under_way)

    # Publishing

    def _publish(self) -> None:
        while self._publishing or self._under_way:
            try:
                s = self._open_publisher()
            except (OSError, EOFError):
                time.sleep(RECONNECT_PAUSE_S)
                continue
            try:
                if self._publish_on(s):
                    return
            except OSError:
                continue
            finally:
                s.close()

    def _open_publisher(self) -> socket.socket:
        """Connect to the session, and send again what is not answered: first come, first sent."""
        s, present = log_in(self.port, f"{self.name}-publisher", clean=False, keep_alive_s=60)
        if self._under_way and not present:
            self.sessions_lost += 1
        again = bytearray()
        for packet_id, (sequence, body) in self._under_way.items():
            if body:
                self.history.attempt(sequence, at=time.monotonic())
                again += self._publish_packet(packet_id, body, duplicate=True)
            else:
                again += packet(0x62, struct.pack(">H", packet_id))
        try:
            s.sendall(again)
        except OSError:
            s.close()
            raise
        return s

    def _publish_packet(self, packet_id: int, body: bytes, *, duplicate: bool) -> bytes:
        first = 0x30 | self.qos << 1 | (8 if duplicate else 0)
        return packet(first, utf8(self._topic) + struct.pack(">H", packet_id) + body)

    def _publish_on(self, s: socket.socket) -> bool:
        """Publish until told to finish (True, also when answers stay out) or the connection ends (False)."""
        answers = bytearray()
        deadline = None
        while self._publishing or self._under_way:
            out = bytearray()
            while len(out) < 8192 and self._may_send(len(self._under_way)):
                sequence, body = self._take()
                packet_id = sequence % PACKET_IDS + 1
                self._under_way[packet_id] = (sequence, body)
                out += self._publish_packet(packet_id, body, duplicate=False)
            s.settimeout(LIMIT_S)
            s.sendall(out)
            s.settimeout(0.005)
            if not self._publishing:
                deadline = deadline or time.monotonic() + LIMIT_S
                if time.monotonic() > deadline:
                    break
            try:
                data = s.recv(65536)
            except TimeoutError:
                continue
            if not data:
                return False
            answers += data
            s.settimeout(LIMIT_S)
            s.sendall(self._read_answers(answers))
        return True

    def _read_answers(self, answers: bytearray) -> bytes:
        """Take whole answers out of the buffer and return what to say to them."""
        replies = bytearray()
        while len(answers) >= PUBACK_BYTES:
            kind, size, packet_id = struct.unpack_from(">BBH", answers)
            if size != 2 or kind not in (0x40, 0x50, 0x70):
                raise RuntimeError(f"unexpected answer to a publisher: {bytes(answers[:20])!r}")
            del answers[:PUBACK_BYTES]
            if kind == 0x50:
                if packet_id in self._under_way:
                    self._under_way[packet_id] = (self._under_way[packet_id][0], b"")
                replies += packet(0x62, struct.pack(">H", packet_id))
            elif packet_id in self._under_way:
                self._acked(self._under_way.pop(packet_id)[0])
        return bytes(replies)

    # Consuming

    def _consume(self) -> None:
        client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            f"{self.name}-subscriber",
            clean_session=False,
            reconnect_on_failure=False,
        )
        client.on_connect = self._on_subscriber_connected
        client.on_subscribe = lambda *_: self._ready.set()
        client.on_message = self._on_message
        try:
            while self._running:
                self._turn(client)
        finally:
            paho_sockets.close(client)

    def _on_subscriber_connected(
        self, client: mqtt.Client, userdata: object, flags: mqtt.ConnectFlags, *_: object
    ) -> None:
        if self._ready.is_set() and not flags.session_present:
            self._session_lost()
        if not flags.session_present:
            client.subscribe(self._topic, self.qos)

    def _on_message(self, client: mqtt.Client, userdata: object, message: mqtt.MQTTMessage) -> None:
        sequence = self._received(bytes(message.payload), flagged=message.dup)
        if sequence is not None:
            self._unsettled.append(sequence)

    def _turn(self, client: mqtt.Client) -> bool:
        """Connect if needed, else read and write once; False when there is no connection."""
        if client.socket() is None:
            try:
                client.connect("127.0.0.1", self._subscriber_port, keepalive=60)
            except OSError:
                time.sleep(RECONNECT_PAUSE_S)
                return False
        connected = client.loop(0.01) == MQTTErrorCode.MQTT_ERR_SUCCESS
        now = time.monotonic()
        for sequence in self._unsettled:
            self.history.settled[sequence] = now
        self._unsettled.clear()
        return connected
