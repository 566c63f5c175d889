"""An AMQP 0-9-1 connection as a state machine: bytes, calls and time in; bytes and a few wishes out. No I/O.

    HEADER ── AMQP 0 0 9 1 ──> START ── start-ok ──> LOGIN ── authenticated ──> TUNE ── tune-ok ──> OPEN
    OPEN ── open ──> RUNNING                            any ── an error ──> CLOSING ── close-ok ──> ENDED
                                                        any ── connection.close ──> ENDED

Three drivers: `receive` (bytes of a read), calls (`authenticated`, `refused`, `durable`, `backpressure`,
`shutdown`, `lost` ...), and `clock`. After each of them the endpoint looks at what the session wants: output
lies in `out`, and

    login       a name and a password to be checked; the answer is `authenticated` or `refused`
    stalled     whether answers wait for room in the output: what was read waits until it has some
    take_waits  positions of the log after which `durable` must be called
    blocked     whether the peer should not be read, for the log asks publishers to pause
    ended       a reason: flush and close the transport      dropped     a reason: close it without a word

A read is scanned by the kernel (`_codec.pyx`), which handles publishes and acknowledgements itself and hands
everything else to `_event` at its place in the order. Which methods are legal where stands in the tables of
`methods_connection.py` and `methods_channel.py`. An error of a method closes its channel or the connection
by its code (`errors.py`); a closing channel or connection ignores everything but the answer.

Source: AMQP 0-9-1 sections 2.2.4, 4.2; RabbitMQ's rabbit_reader and rabbit_channel as observed (3.10.8,
3.13).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.errors import PenstockError
from penstock.protocols.amqp.channel import publish as slow
from penstock.protocols.amqp.channel.channel import Channel, channel_totals
from penstock.protocols.amqp.channel.methods_channel import channel_method
from penstock.protocols.amqp.codec import _codec
from penstock.protocols.amqp.codec._codec import Codec
from penstock.protocols.amqp.codec.errors import AmqpError, Dropped, answer, erlang, frame_fault, hard, soft
from penstock.protocols.amqp.codec.methods import (
    KNOWN,
    Index,
    decode,
    encode,
)
from penstock.protocols.amqp.options import NEGOTIATION_FRAME_MAX, AmqpOptions
from penstock.protocols.amqp.session import renewal
from penstock.protocols.amqp.session.handshake import (
    HEADER,
    HEADERS,
    LOCALES,
    mechanisms_for,
    server_properties,
)
from penstock.protocols.amqp.session.methods_connection import LEGAL
from penstock.protocols.amqp.session.state import Login, State
from penstock.protocols.detection import hint
from penstock.protocols.net.connection_info import Totals
from penstock.protocols.net.outbuffer import OutBuffer
from penstock.protocols.properties._tables import TableError
from penstock.protocols.properties.values import Table, Value
from penstock.router.authorization.identity import Actor, Identity
from penstock.router.errors import AccessRefused
from penstock.router.limits.limits import BACKLOG_BYTES
from penstock.router.names import ENC_AMQP091, wire

if TYPE_CHECKING:
    from penstock.router.broker import Broker
    from penstock.router.vhost.vhost import Vhost
    from penstock.subscriptions.tick._tick import Sink

__all__ = ["Session"]

_LOGIN_ENTRIES: Final = 256
"""Entries of a table before the login."""


class Session:
    """See the module."""

    def __init__(
        self,
        broker: Broker,
        options: AmqpOptions,
        out: OutBuffer,
        *,
        version: str,
        owner: object,
        output_capacity: Callable[[], int],
        dirty: Callable[[], object],
        look: Callable[[], object] = lambda: None,
        name: Callable[[], str] = lambda: "",
        sink: Sink | None = None,
    ) -> None:
        """`owner` is the connection to the broker. The connection gives the functions after `owner`.

        `sink` is the connection again, for kernels: they need not call `output_capacity` and `dirty` then.

        `look` is called when something but the drivers has changed what the session wants.
        """
        self.broker = broker
        self.log = broker.log
        self.options = options
        self.out = out
        self.output_capacity = output_capacity
        self.name = name
        self.sink = sink
        self._owner = owner
        self._dirty = dirty
        self._look = look
        self._version = version
        self.state = State.HEADER
        self.codec = Codec(out, NEGOTIATION_FRAME_MAX, options.max_message_bytes)
        self.frame_max = NEGOTIATION_FRAME_MAX
        self.channel_max = options.channel_max
        self.heartbeat_s = 0
        self.client_properties: Table = {}
        self.actor: Actor
        """The user who is logged in; set from State.TUNE on."""
        self.vhost: Vhost
        """Set from State.RUNNING on."""
        self.certificate_user: str | None = None
        """Whom the peer's verified certificate names; set before the first bytes."""
        self.elsewhere: int | None = None
        """The worker that serves the vhost which the client opens: the host hands the connection over."""
        self.login: Login | None = None
        self.ended: str | None = None
        self.peer_closes = False
        """It ended because the peer said goodbye, who is to close."""
        self.dropped: str | None = None
        self.blocked = False
        self._backpressure = False
        self._told_blocked = False
        self._gated: dict[Channel, None] = {}
        self.stalled = False
        self._answers_held = 0
        self.gone = Totals()
        """Of channels that are closed."""

    # Asked by the endpoint

    @property
    def quick(self) -> Codec | None:
        """The codec that may take the next read, as far as nobody else has to see it."""
        ordinary = self.state is State.RUNNING and not (self._backpressure or self.stalled)
        return self.codec if ordinary else None

    @property
    def synced_lsn(self) -> int:
        return self.log.synced_lsn

    def channels(self) -> list[Channel]:
        """Those that are open, or closing."""
        return [cast(Channel, core.owner) for core in self.codec.all_channels()]

    def client_can(self, capability: str) -> bool:
        """Whether the client announced the capability."""
        capabilities = self.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(capability) is True

    def take_login(self) -> Login | None:
        """A login that is to be checked now."""
        login, self.login = self.login, None
        return login

    def take_waits(self) -> tuple[int, int]:
        """(LSN that must be written, LSN that must be synced) before `durable` has work to do; 0 = none."""
        written, synced = self.codec.take_waits()
        for channel in self._gated:
            synced = max(synced, channel.gate.take_awaited())
        return written, synced

    def dirty(self) -> None:
        """There is output."""
        self._dirty()

    def gated(self, channel: Channel) -> None:
        """Replies of `channel` wait."""
        self._gated[channel] = None

    # A client may ask for many large messages in one read; it gets them as it takes them: what lies in the
    # output and in the gates of the channels is bounded, and the rest of the read waits.

    def hold_answer(self, size: int) -> None:
        """An answer of `size` bytes waits for its turn."""
        self._answers_held += size
        self.stalled = self.output_capacity() <= self._answers_held

    def give_answer(self, answer: bytes) -> None:
        """Its turn has come."""
        self._answers_held -= len(answer)
        self.out.write(answer)
        self.dirty()
        self.unstall()

    def unstall(self) -> None:
        """Answers left, or there is room: the rest of the read may be handled."""
        if self.stalled:
            self.stalled = self.output_capacity() <= self._answers_held

    def forget(self, channel: Channel) -> None:
        """The channel is closed on both sides: its number is free."""
        self.gone.channels_closed += 1
        self.gone.add(channel_totals(channel.core))
        channel.gate.close()
        self._gated.pop(channel, None)
        self.codec.drop_channel(channel.core)
        channel.core.let_go()
        channel.transaction = None

    # Bytes

    def receive(self, buffer: bytearray, size: int) -> int:
        """Handle buffer[0:size]; how many bytes of it are done with. Never raises for what a peer sends."""
        try:
            return self._receive(buffer, size)
        finally:
            self.log.producers.close()

    def _receive(self, buffer: bytearray, size: int) -> int:
        start = 0
        if self.state is State.HEADER:
            start = self._header(buffer, size)
            if not start:
                return 0
        codec = self.codec
        codec.feed(buffer, start, size)
        while not self.stalled:
            try:
                event = codec.next()
                if event is None:
                    break
                self._event(event)
            except PenstockError as error:
                # Of the kernel itself: the log takes nothing more.
                self.fail(answer(error), (60, 40))
            if self.ended is not None or self.dropped is not None or self.elsewhere is not None:
                return size
        codec.feed_starved()
        if self.out.size:
            self.dirty()
        if self._backpressure and self.state is State.RUNNING:
            self._check_pressure()
        return codec.consumed

    def _header(self, buffer: bytearray, size: int) -> int:
        if size < 8 and HEADER.startswith(bytes(buffer[: min(size, 4)])):
            return 0
        if bytes(buffer[:8]) in HEADERS and size >= 8:
            self.state = State.START
            anonymous = self.options.allow_anonymous is not False
            mechanisms = mechanisms_for(self.certificate_user, anonymous=anonymous)
            properties = server_properties(self._version, self.options.cluster_name)
            self.send("connection.start", 0, 9, properties, mechanisms, LOCALES)
            return 8
        self.out.write(HEADER)
        self.dirty()
        self.end(f"no header of AMQP 0-9-1{hint(bytes(memoryview(buffer)[: min(size, 64)]))}")
        return size

    def _event(self, event: tuple[Any, ...]) -> None:
        kind, number = event[0], event[1]
        if self.state is State.CLOSING:
            if kind == _codec.METHOD and number == 0:
                self._closing_method((event[2], event[3]))
            return
        index: Index = (60, 40)
        channel: Channel | None = None
        try:
            if kind == _codec.FAULT:
                _, _, name, frame_type, octets, detail = event
                raise frame_fault(name, frame_type, octets, detail, self.frame_max)
            if kind == _codec.METHOD and number == 0:
                index = (event[2], event[3])
                self._connection_method(index, event[4])
                return
            if self.state is not State.RUNNING:
                raise hard(503, f"a channel cannot be used while the connection is {self.state.value}")
            core = self.codec.channel(number)
            channel = core.owner if core is not None else None  # type: ignore[assignment]
            if kind == _codec.METHOD:
                index = (event[2], event[3])
                channel_method(self, channel, number, index, event[4])
                return
            assert channel is not None  # the kernel has the table of channels
            if kind == _codec.PUBLISH:
                slow.publish(channel, *event[2:])
            elif kind == _codec.REFUSED:
                raise event[2]
            elif kind == _codec.UNKNOWN_TAG:
                index = (60, event[2])
                raise soft(406, f"unknown delivery tag {event[3]}")
            elif kind == _codec.TOO_LARGE:
                most = self.options.max_message_bytes
                raise soft(406, f"message size {event[2]} is larger than configured max size {most}")
        except Dropped as error:
            self.tear_down()
            self.state = State.ENDED
            self.dropped = error.message
        except TableError:
            octets = event[4] if kind == _codec.METHOD else event[4][:64]
            self.fail(hard(501, f"cannot decode {erlang(octets[:64])}"), index)
        except PenstockError as error:
            self._failed(answer(error), channel, index)

    def _failed(self, told: AmqpError, channel: Channel | None, index: Index) -> None:
        # Not a variable of the method that caught it: error and frame would hold each other.
        if told.hard or channel is None:
            self.fail(told, index)
        else:
            channel.fail(told, index)

    # Methods of the connection

    def _connection_method(self, index: Index, arguments: bytes) -> None:
        handler = LEGAL.get((self.state, index))
        if handler is None:
            if index not in KNOWN:
                raise Dropped(f"method {index[0]}.{index[1]} does not exist")
            code = 504 if self.state is State.RUNNING else 503
            raise hard(code, f"unexpected method in connection state {self.state.value}")
        entries = 1024 if self.state is State.RUNNING else _LOGIN_ENTRIES
        handler(self, decode(index, arguments, entries=entries))

    def _closing_method(self, index: Index) -> None:
        """We sent connection.close: wait for its answer; a close that crossed it is answered."""
        if index == (10, 50):
            self.send("connection.close-ok")
        elif index == (10, 51):
            self.end("")

    # Calls

    def authenticated(self, identity: Identity) -> None:
        """The login was right, or the new secret."""
        if self.state is State.RUNNING:
            renewal.renewed(self, identity)
        elif self.state is State.LOGIN:
            self.actor = Actor(identity, self._owner)
            self.state = State.TUNE
            options = self.options
            self.send("connection.tune", options.channel_max, options.frame_max, options.heartbeat_s)

    def refused(self, error: PenstockError) -> None:
        """The login was wrong, or the new secret; the peer learns that and no more."""
        if self.state is State.RUNNING:
            renewal.refuse(self)
        if self.state is not State.LOGIN:
            return
        if not self.client_can("authentication_failure_close"):
            self.state = State.ENDED
            self.dropped = error.message
            return
        said = f"Login was refused using authentication mechanism {self.mechanism}. "
        self.fail(hard(403, said + "For details see the broker logfile.", (0, 0)), (0, 0))

    def durable(self, ok: bool) -> None:
        """The log reached a position that was waited for; not `ok`: it failed, nothing more is confirmed."""
        if self.state is not State.RUNNING:
            return
        if not ok:
            for core in self.codec.all_channels():
                core.refuse_all()
            self.fail(hard(541, "the log failed; see the broker logfile"), (0, 0))
            return
        synced = self.log.synced_lsn
        if self.codec.confirm(self.log.written_lsn, self.log.kept_lsn):
            self.dirty()
        for channel in list(self._gated):
            channel.gate.release(synced)
            if not channel.gate.waiting:
                self._gated.pop(channel, None)
        self.unstall()

    def writable(self) -> None:
        """The connection takes output again."""
        self.unstall()
        for channel in self.channels():
            channel.wake_consumers()

    def backpressure(self, paused: bool) -> None:
        """The log asks publishers to pause, or lets them go on."""
        self._backpressure = self.codec.stop_publishes = paused
        if self.state is State.RUNNING:
            self._check_pressure()

    def _check_pressure(self) -> None:
        """Pause a connection that publishes now: everything in front of that publish is still handled.

        Acknowledgements and gets free what is short, so they go on, also of one that published before.
        The client is told of alarms and quotas only: to wait for the disk for a moment is no news.
        """
        self.blocked = self._backpressure and self.codec.stopped
        why = self._why_blocked() if self.blocked else ""
        if why and not self._told_blocked and self.client_can("connection.blocked"):
            self._told_blocked = True
            self.send("connection.blocked", why)
        elif not why and self._told_blocked:
            self._told_blocked = False
            self.send("connection.unblocked")

    def _why_blocked(self) -> str:
        if alarms := self.log.alarms:
            return f"low on {' & '.join(reversed(alarms))}"
        if not self.vhost.full:
            return ""
        return f"vhost '{self.vhost.name[:200]}' holds more than its {BACKLOG_BYTES}"

    def shutdown(self) -> None:
        """The gateway stops."""
        if self.state in (State.CLOSING, State.ENDED):
            return
        if self.state in (State.HEADER, State.START, State.LOGIN):
            self.end("the gateway stops")
            return
        self.fail(hard(320, "broker forced connection closure with reason 'shutdown'", (0, 0)), (0, 0))

    # As a member of the vhost

    def enter(self, vhost: Vhost) -> None:
        """The client is let into `vhost`: it may open channels."""
        self.vhost = vhost
        self.broker.connections.enter(self)
        vhost.firehose.listeners.add(self._firehose_turned)
        self.replace(self.identity)
        self.state = State.RUNNING

    def replace(self, identity: Identity) -> None:
        """The client is this identity from here on: what it publishes is asked anew."""
        self.actor = Actor(identity, self._owner)
        self.codec.open(
            self.vhost.publisher(identity, ENC_AMQP091), self.log.appender, wire(identity.username)
        )

    @property
    def identity(self) -> Identity:
        """The user who is logged in."""
        return self.actor.identity

    @property
    def channel_count(self) -> int:
        """Channels it has open."""
        return self.codec.channel_count

    def permissions_changed(self) -> None:
        """Let go of consumers that would not be allowed any more, or of the vhost itself."""
        renewal.renew_tags(self)
        allowed, vhost = self.broker.authorizer, self.vhost.name
        if not allowed.enter(self.identity, vhost):
            refused = AccessRefused("vhost", vhost, vhost, self.identity.username, "read")
            self.fail(answer(refused), (0, 0))
        for channel in self.channels():
            channel.revoke_consumers()
        self._look()

    def _firehose_turned(self) -> None:
        for channel in self.channels():
            channel.turn_firehose()

    def force_close(self, reason: str) -> None:
        """The operator wants the connection to end."""
        self.fail(hard(320, reason, (0, 0)), (0, 0))
        self._look()

    def lost(self) -> None:
        """The transport is gone."""
        self.tear_down()
        self.state = State.ENDED

    def look_at_timeouts(self, now: float) -> None:
        """Close the channels that keep deliveries for too long; to be called each second.

        `now` in seconds on any one clock.
        """
        if self.state is State.RUNNING and self.vhost.times_consumers:
            for channel in self.channels():
                channel.timeouts.look(channel, now)

    def heartbeat(self) -> None:
        """Write a heartbeat."""
        self.out.write(b"\x08\x00\x00\x00\x00\x00\x00\xce")
        self.dirty()

    @property
    def message_counts(self) -> tuple[int, int]:
        """Messages received and delivered."""
        totals = self.totals()
        return totals.published, totals.delivered

    def totals(self) -> Totals:
        """The messages that the connection moved so far, closed channels included."""
        sum_ = Totals()
        sum_.add(self.gone)
        for core in self.codec.all_channels():
            sum_.add(channel_totals(core))
        sum_.published = self.codec.published
        sum_.sizes, sum_.size_sum = self.codec.size_counts, self.codec.size_sum
        return sum_

    # The end

    def fail(self, error: AmqpError, index: Index) -> None:
        """Close the connection because of `error`."""
        if self.state in (State.CLOSING, State.ENDED):
            return
        self.tear_down()
        class_id, method_id = error.index or index
        self.state = State.CLOSING
        # A paused publisher must be read again, or its close-ok never comes.
        self.blocked = self.codec.stop_publishes = False
        self.failure = error.reply_text
        self.send("connection.close", error.code, error.reply_text, class_id, method_id)

    failure = ""
    """The reason for which we closed the connection."""
    mechanism = ""

    def end(self, reason: str) -> None:
        self.state = State.ENDED
        self.ended = reason or self.failure

    def tear_down(self) -> None:
        """Give back what the connection holds: consumers, unacknowledged messages, exclusive queues."""
        self.stalled = False
        for channel in self.channels():
            channel.shut()
            self.forget(channel)
        if hasattr(self, "vhost"):
            self.broker.connections.leave(self)
            self.vhost.firehose.listeners.discard(self._firehose_turned)
            self.vhost.connection_closed(self._owner)

    # Output

    def send(self, name: str, *values: Value) -> None:
        self.out.write(encode(name, 0, *values))
        self.dirty()
