"""One native connection, free of input and output: login, handles, batches, settling.

Driven by bytes (`receive`), by the log (`durable`), by its host. A frame that the kernel does not handle
comes to `frame` in its order. Nothing here raises for what a peer can send: a mistake in a request is
answered, one in the protocol ends the connection with an ERROR frame.

    GREETING   the preface and HELLO are next
    LOGIN      LOGIN is next
    CHECKING   the password is being verified; no frame is looked at
    RUNNING    everything else
    ENDED      nothing is looked at any more
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from penstock import __version__
from penstock.errors import PenstockError
from penstock.protocols.detection import stranger
from penstock.protocols.native.codec import frames, kinds
from penstock.protocols.native.codec._codec import Codec
from penstock.protocols.native.codec._consumer import Consumer
from penstock.protocols.native.codec._producer import Producer
from penstock.protocols.native.codec.errors import RequestError, refusal, unknown_handle
from penstock.protocols.native.codec.frames import Fields
from penstock.protocols.native.codec.kinds import PREFACE, VERSION
from penstock.protocols.native.codec.packing import available, unpack
from penstock.protocols.native.options import LOGIN_MAX, NativeOptions
from penstock.protocols.native.session.consuming import Consuming
from penstock.protocols.native.session.opening import Opening
from penstock.protocols.native.session.preparing import Preparing
from penstock.protocols.native.session.producing import Producing
from penstock.protocols.native.session.pulling import Pulling
from penstock.protocols.native.session.raw import RawReads
from penstock.protocols.native.session.requests import REQUESTS
from penstock.protocols.net.connection_info import Totals
from penstock.router.authorization.identity import Actor, Identity
from penstock.router.names import ENC_AMQP091, wire

if TYPE_CHECKING:
    from penstock.protocols.net.outbuffer import OutBuffer
    from penstock.router.broker import Broker
    from penstock.router.vhost.vhost import Vhost
    from penstock.subscriptions.cursor._cursor import Cursor

__all__ = ["Session", "State"]

_PASSWORD_MAX: Final = 12 << 10
"""Bytes of a password, which may be a token."""
_PROBE_S: Final = 5.0
"""How long a peer has to show that it is there."""

_OFFERED: Final = (*kinds.CAPABILITIES, "log", kinds.STORED, kinds.ROUTED, kinds.LOG_ID)
"""Besides compression, which depends on what is installed."""


_numbers: Final = itertools.count(1)


class State(Enum):
    """See the module."""

    GREETING = "greeting"
    LOGIN = "login"
    CHECKING = "checking"
    RUNNING = "running"
    ENDED = "ended"


class Login:
    """A login to be verified."""

    def __init__(self, user: str, password: bytes, vhost: str, certified: bool) -> None:
        self.user = user
        self.password = password
        self.vhost = vhost
        self.certified = certified


class Session:
    """See the module."""

    vhost: Vhost
    identity: Identity
    channel_count = 0

    def __init__(
        self,
        broker: Broker,
        options: NativeOptions,
        out: OutBuffer,
        *,
        owner: object,
        output_capacity: Callable[[], int],
        dirty: Callable[[], None],
        look: Callable[[], None],
        go_on: Callable[[], None],
        name: Callable[[], str] = lambda: "",
        deaf: Callable[[], bool] = lambda: False,
    ) -> None:
        """`look` is called when the host must see to `login`, `ended` or new waits outside of a read; `go_on`
        when it is to hand over again what `receive` left for `codec.stalled`; `name` is the connection's;
        `deaf` says that the host does not read it at the moment."""
        self.broker = broker
        self.options = options
        self.log = broker.log
        self.output_capacity = output_capacity
        self.name = name
        self._deaf = deaf
        self.dirty = dirty
        self.look = look
        self.owner = owner
        self.state = State.GREETING
        self.codec = Codec(out, broker.log.appender, self, LOGIN_MAX)
        self.login: Login | None = None
        """To be verified by the host, which calls `authenticated` or `refused_login`."""
        self.ended: str | None = None
        """Why the connection is to be closed, when what is encoded is sent."""
        self.pinged = False
        self.number = next(_numbers)
        """Of the session in this process; part of the names of consumers that give none."""
        self.client = ""
        self.certificate_user: str | None = None
        self._tells_log = False
        self.elsewhere: int | None = None
        """The worker that serves the vhost: the host hands the connection over."""
        self.actor: Actor
        self.producing = Producing(self)
        self.preparing = Preparing(self)
        self.consuming = Consuming(self)
        self.pulling = Pulling(self)
        self.raw = RawReads(self)
        self.opening = Opening(self, go_on)
        self._prefaced = False
        self._probes: list[Callable[[bool], None]] = []
        self._probing: Any = None

    @property
    def running(self) -> bool:
        """Whether somebody is logged in and nothing has ended."""
        return self.state is State.RUNNING

    # Bytes

    def receive(self, buffer: bytearray, size: int) -> int:
        """Handle what is whole in buffer[0:size]; how many bytes are done with."""
        at = 0
        if not self._prefaced:
            if not PREFACE.startswith(buffer[: min(size, len(PREFACE))]):
                self._mistaken(bytes(memoryview(buffer)[: min(size, 64)]))
                return size
            if size < len(PREFACE):
                return 0
            self._prefaced = True
            at = len(PREFACE)
        if self._probes:
            self._probed(True)
        consumed = self.codec.receive(buffer, at, size)
        self.producing.end_read()
        return consumed

    def _mistaken(self, first: bytes) -> None:
        """The peer speaks another protocol."""
        what, remedy = stranger(first) or (
            f"something that begins with {first[:8]!r}",
            "correct the client; docs/reference/native.md",
        )
        message = f"the native protocol begins with the bytes PENSTOCK; this client speaks {what}"
        self.fail(RequestError("preface", message, remedy=remedy))

    def frame(self, kind: int, id: int, payload: bytes) -> None:
        """A frame that is not the kernel's."""
        if self.state is State.ENDED:
            return
        try:
            self._frame(kind, id, payload)
        except PenstockError as error:
            if self.state is not State.RUNNING or kind not in (kinds.REQUEST, kinds.TRANSACT):
                self.fail(error)
            else:
                self.answer_error(id, error)

    def _frame(self, kind: int, id: int, payload: bytes) -> None:
        name = frames.NAMES.get(kind, f"0x{kind:02x}")
        if self.state is State.GREETING:
            if kind != kinds.HELLO:
                raise RequestError("unexpected_frame", f"{name} before HELLO", remedy="send HELLO first")
            self._hello(frames.decode(payload, LOGIN_MAX))
            return
        if self.state is State.LOGIN:
            if kind != kinds.LOGIN:
                raise RequestError("unexpected_frame", f"{name} before LOGIN", remedy="send LOGIN first")
            self._login(frames.decode(payload, LOGIN_MAX))
            return
        match kind:
            case kinds.REQUEST:
                self._request(id, payload)
            case kinds.PULL:
                self.pulling.pull(id, payload)
            case kinds.PRODUCE_AT:
                self.producing.produce_at(id, payload)
            case kinds.TRANSACT:
                self.producing.transact(id, payload)
            case kinds.PREPARE:
                self.preparing.prepare(id, payload)
            case kinds.PING:
                self.codec.send(kinds.PONG, id, b"")
                self.dirty()
            case kinds.PONG:
                self.pinged = False
            case _:
                raise RequestError(
                    "unexpected_frame",
                    f"a client does not send {name} here",
                    remedy="correct the client; docs/reference/native.md",
                )

    # Login

    def _hello(self, fields: Fields) -> None:
        versions = fields.any("versions")
        self.client = fields.text("client", "unknown")[:100] or "unknown"
        capabilities = fields.any("capabilities")
        fields.done()
        if isinstance(capabilities, list):
            self.codec.outgoing.packs = next((one for one in capabilities if one in available()), "")
            self.codec.outgoing.stores = kinds.STORED in capabilities
            self.codec.tells_routed = kinds.ROUTED in capabilities
            self._tells_log = kinds.LOG_ID in capabilities
        if not isinstance(versions, list) or VERSION not in versions:
            raise RequestError(
                "version",
                f"the versions {str(versions)[:100]} are not spoken here",
                remedy=f"speak {VERSION}",
            )
        self.state = State.LOGIN
        self._send(
            kinds.WELCOME,
            {
                "version": VERSION,
                "server": f"penstock/{__version__}",
                "capabilities": (*_OFFERED, *available()),
                "mechanisms": ["PLAIN", *(["EXTERNAL"] if self.certificate_user else [])],
                "max_frame_bytes": self.options.max_frame_bytes,
                "heartbeat_s": self.options.heartbeat_s,
            },
        )

    def _login(self, fields: Fields) -> None:
        mechanism = fields.choice("mechanism", ("PLAIN", "EXTERNAL"), "PLAIN")
        vhost = fields.text("vhost", "/")
        self.elsewhere = self.broker.elsewhere(vhost)
        if self.elsewhere is not None:
            self.codec.halted = True
            return
        if mechanism == "EXTERNAL":
            fields.done()
            if self.certificate_user is None:
                raise RequestError(
                    "login_refused",
                    "EXTERNAL needs a client certificate that the gateway verified",
                    remedy="connect with TLS and a certificate, or log in with PLAIN",
                )
            self.login = Login(self.certificate_user, b"", vhost, True)
        else:
            user = fields.text("user")
            password = fields.text("password", most=_PASSWORD_MAX).encode("utf-8", "surrogatepass")
            fields.done()
            self.login = Login(user, password, vhost, False)
        self.state = State.CHECKING
        self.codec.halted = True

    def authenticated(self, login: Login, identity: Identity) -> None:
        """The password is right: enter the vhost, and go on with what came behind the login."""
        self.identity = identity
        self.actor = Actor(identity, self.owner)
        try:
            self.vhost = self.broker.enter(identity, login.vhost)
            self.broker.connections.enter(self)
        except PenstockError as error:
            self.fail(error)
            return
        self.state = State.RUNNING
        self.codec.halted = False
        self.codec.user = wire(identity.username)
        self.codec.frame_max = self.options.max_frame_bytes
        self.codec.table = self.vhost.publisher(identity, ENC_AMQP091)
        log = {"log": self.log.log_id} if self._tells_log else {}
        self._send(kinds.READY, {"user": identity.username, "vhost": self.vhost.name, **log})

    def refused_login(self, error: PenstockError) -> None:
        """It is not."""
        self.fail(error)

    # Requests

    def _request(self, id: int, payload: bytes) -> None:
        fields = frames.decode(payload)
        name = fields.text("do")
        handler = REQUESTS.get(name)
        if handler is None:
            raise RequestError(
                "unknown_request", f"there is no request {name!r}", remedy=f"there are {', '.join(REQUESTS)}"
            )
        handler(self, id, fields)

    def answer(self, id: int, value: dict[str, Any], lsn: int = 0) -> None:
        """Answer a request, when everything up to `lsn` is on the disk."""
        if lsn <= self.log.synced_lsn:
            self._send(kinds.RESPONSE, value, id)
            return

        def told(ok: bool) -> None:
            if self.state is not State.RUNNING:
                return
            if ok:
                self._send(kinds.RESPONSE, value, id)
            else:
                self.answer_error(
                    id,
                    RequestError("log_failed", "the log failed", remedy="see the log lines of the gateway"),
                )

        self.log.when_synced(lsn, told)
        self.broker.tick.schedule()

    def answer_error(self, id: int, error: PenstockError) -> None:
        """Refuse a request."""
        self._send(kinds.ERROR, refusal(error), id)

    def event(self, handle: int, value: dict[str, Any]) -> None:
        """Tell the peer something of one of its handles."""
        if self.state is State.RUNNING:
            self._send(kinds.EVENT, value, handle)

    def _send(self, kind: int, value: dict[str, Any], id: int = 0) -> None:
        self.codec.send(kind, id, frames.encode(value))
        self.dirty()

    # Whether the peer is there

    def probe(self, told: Callable[[bool], None]) -> None:
        """Find out whether the peer is there still, and call `told`; one that is not is let go first."""
        self._probes.append(told)
        if self._probing is None:
            self._probing = self.broker.tick.after(_PROBE_S, self._silent)
            self.codec.send(kinds.PING, 0, b"")
            self.dirty()

    def _probed(self, there: bool) -> None:
        if self._probing is not None:
            self._probing.cancel()
            self._probing = None
        probes, self._probes = self._probes, []
        for told in probes:
            told(there)

    def _silent(self) -> None:
        # A client that is not read cannot be heard: that silence is ours.
        if self._deaf():
            self._probed(True)
            return
        if self.state is State.RUNNING:
            self.consuming.lost()
            error = RequestError(
                "silent",
                f"nothing came for {_PROBE_S:.0f} s behind a PING, and another consumer wants the place",
                remedy="connect again",
            )
            self.fail(error)
        self._probed(False)

    # Calls of the kernel

    def fault(self, code: str, message: str) -> None:
        """The peer broke the protocol."""
        self.fail(RequestError(code, message, remedy="correct the client; docs/reference/native.md"))

    def fail(self, error: PenstockError) -> None:
        """End the connection, and say why."""
        if self.state is State.ENDED:
            return
        self._send(kinds.ERROR, refusal(error))
        self._end(str(error))

    def _end(self, reason: str) -> None:
        self.state = State.ENDED
        self.codec.halted = True
        self.ended = reason
        self.look()

    def unknown_handle(self, id: int, request: int) -> None:
        """Late frames of a consumer that is closed are passed over, as both sides may close it at once.

        A client that waits for an answer (`request` is not 0) gets one.
        """
        if request:
            self.answer_error(request, unknown_handle("consumer", id))

    def refused(self, id: int, sequence: int, count: int, why: str | PenstockError) -> None:
        """A batch that is not appended."""
        self.producing.refused(id, sequence, count, why)

    def must_wait(self, kind: int, id: int, payload: bytes) -> bool:
        return self.opening.must_wait(kind, id, payload)

    # The rest of `_codec.Host` and `_consumer.Host`: each call goes to the part that knows.

    def admit(self, producer: Producer, sequence: int, count: int) -> int | None:
        return self.producing.admit(producer, sequence, count)

    def unpacked(self, packed: bytes) -> bytes | None:
        try:
            return unpack(packed, self.options.max_frame_bytes)
        except ValueError as error:
            self.fault("malformed", str(error))
            return None

    def begin_unit(self) -> None:
        self.log.producers.open()

    def note(self, producer: Producer, sequence: int, count: int, position: int) -> None:
        self.producing.note(producer, sequence, count, position)

    def publish_each(
        self, producer: Producer, sequence: int, acks: int, records: list[tuple[bytes, bytes]]
    ) -> None:
        self.producing.publish_each(producer, sequence, acks, records)

    def may_cumulate(self, consumer: Consumer, request: int) -> bool:
        return self.consuming.may_cumulate(consumer, request)

    def acknowledged(self, consumer: Consumer, request: int) -> None:
        self.consuming.acknowledged(consumer, request)

    def give_back_later(
        self, consumer: Consumer, cursor: Cursor, seq: int, count: int, delay_ms: int
    ) -> None:
        self.consuming.give_back_later(consumer, cursor, seq, count, delay_ms)

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        self.consuming.cancelled(consumer, reason)

    def voided(self, consumer: Consumer) -> None:
        self.consuming.voided(consumer)

    def now(self) -> float:
        return self.broker.tick.time()

    # Calls of the host and the router

    def durable(self, ok: bool) -> None:
        """The log reached a position that was waited for; not `ok`: it failed."""
        if self.state is not State.RUNNING:
            return
        if not ok:
            for id, sequence, count in self.codec.drop_pending():
                self.producing.refused(
                    id,
                    sequence,
                    count,
                    RequestError(
                        "log_failed",
                        "the log failed; kept or not, nobody knows",
                        remedy="see the log lines of the gateway, and send it again after the repair",
                    ),
                )
            self.fail(RequestError("log_failed", "the log failed", remedy="see the log lines of the gateway"))
        elif self.codec.confirm(self.log.written_lsn, self.log.synced_lsn):
            self.dirty()

    def writable(self) -> None:
        """There is room for output again."""
        self.consuming.wake()
        self.raw.go_on()

    def shutdown(self) -> None:
        """The gateway stops."""
        if self.state is not State.ENDED:
            self.fail(RequestError("shutdown", "the gateway stops", remedy="connect again"))

    def force_close(self, reason: str) -> None:
        """An operator ends it."""
        self.fail(
            RequestError(
                "closed", reason, remedy="connect again; if that is refused, ask the gateway's operator"
            )
        )

    def permissions_changed(self) -> None:
        """The user's rights changed: consumers of queues that it may not read any more are closed."""
        if not self.broker.authorizer.enter(self.identity, self.vhost.name):
            self.force_close(f"access to vhost '{self.vhost.name}' was withdrawn")
        else:
            self.consuming.permissions_changed()

    def lost(self) -> None:
        """The connection is gone: give everything back."""
        if self.state is State.RUNNING or hasattr(self, "vhost"):
            self.consuming.lost()
            self.pulling.lost()
            self.producing.lost()
            self.preparing.lost()
            self.broker.connections.leave(self)
            self.vhost.connection_closed(self.owner)
            self._probed(False)
        self.state = State.ENDED
        self.codec.halted = True

    def let_go(self) -> None:
        """Break the cycles. A callback of the log finds the session ended, and does nothing."""
        self.codec.let_go()
        del self.producing, self.preparing, self.consuming, self.pulling, self.raw, self.opening

    def totals(self) -> Totals:
        """Its totals."""
        codec = self.codec
        return Totals(
            published=codec.published,
            confirmed=codec.confirmed,
            delivered=codec.outgoing.delivered,
            acknowledged=codec.outgoing.acknowledged,
        )
