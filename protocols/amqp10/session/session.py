"""An AMQP 1.0 connection as a state machine: bytes, calls and time in; bytes and a few wishes out. No I/O.

    HEADER ── AMQP 3 1 0 0 ──> SASL ── sasl-init ──> LOGIN ── authenticated ──> SECOND_HEADER
    SASL ── sasl-init ──> SASL, with a challenge ── sasl-response ──> LOGIN
    HEADER ── AMQP 0 1 0 0, where anybody may come ──> LOGIN ── authenticated ──> OPEN
    SECOND_HEADER ── AMQP 0 1 0 0 ──> OPEN ── open ──> RUNNING ── close ──> ENDED
    any ── an error ──> CLOSING ── close ──> ENDED

After each call the endpoint looks at what the session wants: `login`, `take_waits`, `blocked`, `elsewhere`,
`ended`, as those of AMQP 0-9-1's session, whose neighbour this is.

The vhost is "/" or, as with RabbitMQ, the one that `hostname` of open names as `vhost:NAME`.

Source: AMQP 1.0 part 2 sections 2.2 and 2.4, part 5 section 5.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.protocols.amqp10.channel.channel import Channel
from penstock.protocols.amqp10.channel.refusals import LinkError, SessionError, told
from penstock.protocols.amqp10.codec._decoding import VALUES_MAX
from penstock.protocols.amqp10.codec.errors import FramingError
from penstock.protocols.amqp10.codec.frames import (
    FRAME_MIN,
    HEADER,
    HEARTBEAT,
    SASL,
    SASL_HEADER,
    encode_frame,
    read_frame,
)
from penstock.protocols.amqp10.codec.performatives import (
    Begin,
    Close,
    End,
    Error,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Transfer,
)
from penstock.protocols.amqp10.codec.values import Symbol
from penstock.protocols.amqp10.management.requests import Response
from penstock.protocols.amqp10.options import Options
from penstock.protocols.amqp10.session._scanner import Scanner
from penstock.protocols.amqp10.session.sasl import SaslExchange, offered
from penstock.protocols.amqp10.session.state import Login, State
from penstock.protocols.net.connection_info import Totals
from penstock.router.authorization.identity import Actor, Identity
from penstock.router.errors import AccessRefused
from penstock.router.names import ENC_AMQP091, wire

if TYPE_CHECKING:
    from penstock.protocols.amqp10.channel.transactions import Transaction
    from penstock.protocols.net.outbuffer import OutBuffer
    from penstock.router.authentication.users import ScramLogin
    from penstock.router.broker import Broker
    from penstock.router.vhost.vhost import Vhost
    from penstock.subscriptions.tick._tick import Sink

__all__ = ["Session"]

_LOGIN_VALUES: Final = 256
_LOGIN_FRAME_MAX: Final = 8192
"""Before the login: room for a token as a password."""
_IDLE_MIN_MS: Final = 2000
"""A heartbeat is sent once a second at most."""
_VHOST: Final = "vhost:"
_VERSION: Final = "4.2.0"
"""The RabbitMQ whose features are those that are here."""


class Session(Scanner):
    """See the module. The kernel that it derives from takes the ordinary frames of an open connection."""

    def __init__(
        self,
        broker: Broker,
        options: Options,
        out: OutBuffer,
        *,
        version: str,
        owner: object,
        output_capacity: Callable[[], int],
        dirty: Callable[[], object],
        flush: Callable[[], object],
        look: Callable[[], object],
        name: Callable[[], str],
        scram: Callable[[], ScramLogin],
        sink: Sink | None = None,
    ) -> None:
        """`scram` begins a login by SCRAM. `sink` is the connection, for kernels: they need not call
        `output_capacity` and `dirty` then.
        """
        super().__init__(out)
        self.broker = broker
        self.options = options
        self.output_capacity = output_capacity
        self.dirty = dirty
        self.sink = sink
        self.flush = flush
        self.name = name
        self.look = look
        self._scram = scram
        self._owner = owner
        self._version = version
        self.state = State.HEADER
        self.channels: dict[int, Channel] = {}
        self.frame_max = FRAME_MIN
        self.frame_most = options.frame_max
        self.message_max = options.max_message_bytes
        self.idle_s = 0.0
        """The peer wants to hear something this often; 0: it does not mind."""
        self.container = ""
        self.client_properties: dict[str, object] = {}
        self.mechanism = ""
        self.certificate_user: str | None = None
        self.actor: Actor
        self.vhost: Vhost
        self.login: Login | None = None
        self._renewal: Callable[[Response], None] | None = None
        """Takes the answer to a new token that is being checked."""
        self.elsewhere: int | None = None
        self.ended: str | None = None
        self.blocked = False
        self.failure = ""
        self.vanished = False
        """The transport is gone: what was not settled counts as failed."""
        self.transactions: dict[bytes, Transaction] = {}
        """Those that are open."""
        self._entered = False
        self._sasl: SaslExchange | None = None

    # Bytes

    def receive(self, buffer: bytearray, size: int) -> int:
        """Handle buffer[0:size]; how many bytes of it are done with. Never raises for what a peer sends."""
        try:
            return self._receive(buffer, size)
        finally:
            self.broker.log.producers.close()

    def _receive(self, buffer: bytearray, size: int) -> int:
        at = self.begin_read()
        with memoryview(buffer) as view:
            while at < size and self.state is not State.LOGIN and self.ended is None:
                if self.state is State.RUNNING:
                    at = self.scan(buffer, at, size)
                    if at == size:
                        break
                try:
                    consumed = self._one(view, at, size)
                except PenstockError as error:
                    if self.state is State.CLOSING:
                        self.end("")
                    else:
                        self.fail(told(error))
                    # Nobody knows where the next frame begins.
                    return size
                if self.elsewhere is not None:
                    return size
                if not consumed:
                    break
                at += consumed
        if self.state is State.RUNNING:
            self._say_due()
        return size if self.ended is not None else at

    def _one(self, view: memoryview, at: int, size: int) -> int:
        """Handle what begins at `at`; its bytes, or 0: it is not whole, or waits."""
        if self.state in (State.HEADER, State.SECOND_HEADER):
            return self._header(view, at, size)
        known = self.state in (State.RUNNING, State.CLOSING)
        frame_max = self.options.frame_max if known else _LOGIN_FRAME_MAX
        values = VALUES_MAX if known else _LOGIN_VALUES
        frame = read_frame(view, at, size, frame_max, values=values)
        if frame is None:
            if size - at >= 4:
                self.want = int.from_bytes(view[at : at + 4], "big")
            return 0
        end, kind, number, performative, payload = frame
        if (kind == SASL) != (self.state is State.SASL):
            raise FramingError(f"a frame of type {kind} while the connection is {self.state.value}")
        if self.stop_transfers and isinstance(performative, Transfer):
            self.blocked = True
            return 0
        if performative is not None:
            self._frame(number, performative, payload)
        return end - at

    def _header(self, view: memoryview, at: int, size: int) -> int:
        if size - at < 8:
            return 0
        header = bytes(view[at : at + 8])
        if self.state is State.SECOND_HEADER and header == HEADER:
            self.out.write(HEADER)
            self.state = State.OPEN
        elif self.state is State.HEADER and header == SASL_HEADER:
            self.out.write(SASL_HEADER)
            mechanisms = offered(self.options, self.broker.users, self.certificate_user)
            self._send_sasl(SaslMechanisms(mechanisms))
            self.state = State.SASL
            self._sasl = SaslExchange(mechanisms, self.certificate_user, self._scram)
        elif self.state is State.HEADER and header == HEADER and self.options.allow_anonymous is not False:
            self.login = Login("", b"", anonymous=True)
            self.mechanism = "ANONYMOUS"
            self.state = State.LOGIN
        else:
            self.out.write(SASL_HEADER if self.state is State.HEADER else HEADER)
            self.end("a login by SASL is needed")
        self.dirty()
        return 8

    def _frame(self, number: int, performative: Any, payload: bytes) -> None:
        if self.state is State.CLOSING:
            if isinstance(performative, Close):
                self.end("")
        elif self.state is State.SASL:
            self._sasl_frame(performative)
        elif self.state is State.OPEN:
            if not isinstance(performative, Open):
                raise LinkError("amqp:illegal-state", "open comes first")
            self._open(performative)
        elif isinstance(performative, Close):
            self.tear_down()
            self._send(Close())
            error = performative.error
            self.end("the client closed" + (f": {error.condition}" if error is not None else ""))
        elif isinstance(performative, Begin):
            self._begin(number, performative)
        elif isinstance(performative, Open):
            raise LinkError("amqp:illegal-state", "open came already")
        else:
            self._on_channel(number, performative, payload)

    def _on_channel(self, number: int, performative: Any, payload: bytes) -> None:
        channel = self.channels.get(number)
        if channel is None:
            raise LinkError("amqp:illegal-state", f"channel {number} has no session")
        if isinstance(performative, End):
            del self.channels[number]
            self.drop_channel(number)
            if not channel.ending:
                channel.shut()
                channel.send(End())
            return
        try:
            channel.handle(performative, payload)
        except SessionError as error:
            channel.fail(told(error))

    def _begin(self, number: int, begin: Begin) -> None:
        if number in self.channels:
            raise LinkError("amqp:illegal-state", f"channel {number} has a session")
        if number > self.options.channel_max or begin.remote_channel is not None:
            raise FramingError(f"begin on channel {number}; channels go up to {self.options.channel_max}")
        self.channels[number] = channel = Channel(self, number, begin)
        self.add_channel(channel)

    # Login and open

    def _sasl_frame(self, performative: Any) -> None:
        sasl = self._sasl
        assert sasl is not None
        step: Login | bytes | None
        try:
            if isinstance(performative, SaslInit):
                step = sasl.init(str(performative.mechanism), performative.initial_response or b"")
                self.mechanism = sasl.mechanism
            elif isinstance(performative, SaslResponse) and sasl.mechanism:
                step = sasl.response(performative.response)
            else:
                raise FramingError("sasl-init comes first")
        except PenstockError as error:
            self._refuse_login(str(error))
            return
        if isinstance(step, bytes):
            self._send_sasl(SaslChallenge(step))
        elif step is None:
            self._refuse_login(self.failure)
        else:
            self.login = step
            self.state = State.LOGIN

    def _send_sasl(self, performative: Any) -> None:
        self.out.write(encode_frame(0, performative, kind=SASL))
        self.dirty()

    def _refuse_login(self, why: str) -> None:
        self._send_sasl(SaslOutcome(1))
        self.end(why)

    def authenticated(self, identity: Identity) -> None:
        """The login was right."""
        if self.state is State.RUNNING:
            self._renewed(identity)
        if self.state is not State.LOGIN:
            return
        self.actor = Actor(identity, self._owner)
        if self._sasl is not None:
            self._send_sasl(SaslOutcome(0, self._sasl.proof()))
            self._sasl = None
            self.state = State.SECOND_HEADER
        else:
            self.out.write(HEADER)
            self.state = State.OPEN
        self.dirty()

    def refused(self, error: PenstockError) -> None:
        """The login was wrong; the peer learns that and no more."""
        if self.state is State.LOGIN:
            challenge = self._sasl.refusal() if self._sasl is not None else None
            if challenge is None:
                self._refuse_login(error.message)
            else:
                # The client answers, and hears the outcome then (RFC 7628, 3.2.3).
                self.failure = error.message
                self.state = State.SASL
                self._send_sasl(SaslChallenge(challenge))
        elif self.state is State.RUNNING:
            self._answer_renewal(Response(403, "the token was refused"))

    # A new token

    def renew(self, token: object, answer: Callable[[Response], None]) -> None:
        """The client has a new token, which is checked as at the login."""
        if not isinstance(token, bytes):
            answer(Response(400, "a token is binary"))
        elif self._renewal is not None:
            answer(Response(400, "a token is being checked already"))
        elif self.identity.grants is None:
            answer(Response(204))  # a password is looked at once: who is in stays in
        else:
            self._renewal = answer
            self.login = Login(self.identity.username, token)

    def _renewed(self, identity: Identity) -> None:
        if identity.grants is None or identity.username != self.identity.username:
            self._answer_renewal(Response(403, "the token is another user's"))
            return
        self.actor = Actor(identity, self._owner)
        self._open_scanner()
        self._answer_renewal(Response(204))
        self.permissions_changed()

    def _answer_renewal(self, response: Response) -> None:
        answer, self._renewal = self._renewal, None
        if answer is not None:
            answer(response)

    def _open(self, open_: Open) -> None:
        vhost = (open_.hostname or "").removeprefix(_VHOST) if _names_vhost(open_) else "/"
        self.container = open_.container_id
        if open_.max_frame_size < FRAME_MIN:
            raise LinkError("amqp:invalid-field", f"max-frame-size is {FRAME_MIN} at least")
        if open_.idle_time_out is not None and 0 < open_.idle_time_out < _IDLE_MIN_MS:
            raise LinkError(
                "amqp:invalid-field", f"an idle-time-out of less than {_IDLE_MIN_MS} ms cannot be kept"
            )
        self.elsewhere = self.broker.elsewhere(vhost)
        if self.elsewhere is not None:
            return
        self.vhost = self.broker.enter(self.identity, vhost)
        self._open_scanner()
        self.broker.connections.enter(self)
        self.vhost.firehose.listeners.add(self._firehose_turned)
        self._entered = True
        self.frame_max = min(open_.max_frame_size, self.options.frame_max)
        self.idle_s = (open_.idle_time_out or 0) / 1000
        self.client_properties = {
            str(key): value
            for key, value in (open_.properties or {}).items()
            if isinstance(value, str | int | bool)
        }
        self._send_open()
        self.state = State.RUNNING

    def _firehose_turned(self) -> None:
        for channel in self.channels.values():
            channel.turn_firehose()

    def _open_scanner(self) -> None:
        self.table = self.vhost.publisher(self.identity, ENC_AMQP091)
        self.open_scanner(self.broker.log.appender, wire(self.identity.username))

    def _send_open(self) -> None:
        options = self.options
        self._send(
            Open(
                "penstock",
                max_frame_size=options.frame_max,
                channel_max=options.channel_max,
                idle_time_out=options.heartbeat_s * 1000 or None,
                offered_capabilities=("ANONYMOUS-RELAY", "DELAYED_DELIVERY", "SHARED-SUBS"),
                properties={
                    # RabbitMQ's clients speak to nobody else, and look for its features by its version.
                    Symbol("product"): "RabbitMQ",
                    Symbol("version"): _VERSION,
                    Symbol("node"): self.broker.node,
                    Symbol("platform"): f"penstock {self._version}",
                },
            )
        )

    # Calls

    @property
    def quick(self) -> Session | None:
        """The session, when it may take the next read without anybody else."""
        return self if self.state is State.RUNNING and not self.stop_transfers else None

    @property
    def identity(self) -> Identity:
        """The user who is logged in."""
        return self.actor.identity

    @property
    def channel_count(self) -> int:
        """Sessions that it has open."""
        return len(self.channels)

    def transaction(self, id_: bytes) -> Transaction:
        """An open transaction. Raises LinkError."""
        found = self.transactions.get(id_)
        if found is None:
            raise LinkError("amqp:transaction:unknown-id", "no transaction of this connection has that id")
        return found

    def steal(self, name: str, role: bool) -> None:
        """Detach the link of this name in this direction, if there is one: it is attached elsewhere."""
        for channel in self.channels.values():
            channel.steal(name, role)

    def take_login(self) -> Login | None:
        """A login that is to be checked now."""
        login, self.login = self.login, None
        return login

    def take_waits(self) -> tuple[int, int]:
        """(LSN that must be written, LSN that must be synced) before `durable` has work to do; 0 = none."""
        log = self.broker.log
        written, synced = super().take_waits()
        return written if written > log.written_lsn else 0, synced if synced > log.synced_lsn else 0

    def durable(self, ok: bool) -> None:
        """The log reached a position that was waited for; not `ok`: it failed, nothing more is accepted."""
        if self.state is not State.RUNNING:
            return
        if not ok:
            self.fail(Error("amqp:internal-error", "the log failed; see the broker logfile"))
            return
        self._say_due()

    def _say_due(self) -> None:
        log = self.broker.log
        for channel in self.channels.values():
            channel.durable(log.synced_lsn)
        self.say_due(log.written_lsn, log.synced_lsn)

    def schedule(self) -> None:
        """Something went back to its queue, or left it."""
        self.broker.tick.schedule()

    def writable(self) -> None:
        """The connection takes output again."""
        for channel in self.channels.values():
            channel.wake()

    def backpressure(self, paused: bool) -> None:
        """The log asks publishers to pause, or lets them go on."""
        self.stop_transfers = paused
        if not paused:
            self.blocked = False

    def heartbeat(self) -> None:
        """Write an empty frame."""
        self.out.write(HEARTBEAT)
        self.dirty()

    def permissions_changed(self) -> None:
        """Take over changed tags, and detach what would not be allowed any more, or leave the vhost."""
        if self.identity.grants is None:
            known = self.broker.users.identity(self.identity.username)
            self.actor = Actor(known or self.identity, self._owner)
        if not self.broker.authorizer.enter(self.identity, self.vhost.name):
            name = self.vhost.name
            self.fail(told(AccessRefused("vhost", name, name, self.identity.username, "read")))
        for channel in self.channels.values():
            channel.permissions_changed()
        self.look()

    def shutdown(self) -> None:
        """The gateway stops."""
        self.fail(Error("amqp:connection:forced", "the gateway stops"))

    def force_close(self, reason: str) -> None:
        """The operator wants the connection to end."""
        self.fail(Error("amqp:connection:forced", reason))
        self.look()

    def lost(self) -> None:
        """The transport is gone."""
        self.vanished = True
        self.tear_down()
        self.state = State.ENDED

    def totals(self) -> Totals:
        """The messages that the connection moved so far."""
        return Totals(
            published=self.published,
            awaiting_confirm=self.published,
            confirmed=self.confirmed,
            delivered=self.delivered,
            acknowledged=self.acknowledged,
        )

    # The end

    def fail(self, error: Error) -> None:
        """Close the connection because of `error`."""
        if self.state in (State.CLOSING, State.ENDED):
            return
        before = self.state
        self.tear_down()
        self.failure = f"{error.condition}: {error.description}"
        if before in (State.RUNNING, State.OPEN):
            if before is State.OPEN:
                # A close follows an open, also when the connection is refused (2.4.1).
                self._send_open()
            self.state = State.CLOSING
            self.blocked = False
            self._send(Close(error))
        else:
            self.end(self.failure)

    def end(self, reason: str) -> None:
        self.state = State.ENDED
        self.ended = reason or self.failure

    def tear_down(self) -> None:
        """Give back what the connection holds: consumers, unsettled messages, exclusive queues."""
        channels, self.channels = self.channels, {}
        for channel in channels.values():
            self.drop_channel(channel.number)
            channel.shut()
        if self._entered:
            self._entered = False
            self.broker.connections.leave(self)
            self.vhost.firehose.listeners.discard(self._firehose_turned)
            self.vhost.connection_closed(self._owner)

    def _send(self, performative: Any) -> None:
        self.out.write(encode_frame(0, performative))
        self.dirty()


def _names_vhost(open_: Open) -> bool:
    return open_.hostname is not None and open_.hostname.startswith(_VHOST)
