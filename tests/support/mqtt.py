"""MQTT sessions without sockets: a gateway in a temporary folder, peers that speak bytes with its sessions.

`Gateway.settle` runs turns until nothing moves, waiting for the log's own threads where the log is waited
for. `Gateway.crash` starts another gateway from a copy of the data as it lies on the disk at that moment:
what a kill -9 leaves.
"""

from __future__ import annotations

import queue
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from penstock.log_core.files.files import Files
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.protocols.mqtt.clients.clients import Clients
from penstock.protocols.mqtt.options import MqttOptions
from penstock.protocols.mqtt.session._connecting import split_user_name
from penstock.protocols.mqtt.session.session import Session, State
from penstock.protocols.net.outbuffer import OutBuffer
from penstock.router.authentication.users import AuthOptions, ScramLogin
from penstock.router.authorization.identity import Identity
from penstock.router.authorization.permissions import Permission
from penstock.router.authorization.topic_rules import TopicGuard
from penstock.router.broker import DEFAULT_VHOST, Broker, BrokerOptions
from penstock.subscriptions.tick._tick import Sink
from penstock.subscriptions.tick.tick import Tick
from tests.reference import mqtt_frames as frames
from tests.reference.mqtt_frames import Packet, Publish
from tests.support.limits import LIMIT_S
from tests.support.logs import files_made
from tests.support.queues import Clock, Loop


class Peer(Sink):
    """A client: sends bytes, keeps what comes back. It is also the host of its session."""

    def __init__(self, gateway: Gateway, version: int) -> None:
        self.gateway = gateway
        self.version = version
        self.out = OutBuffer()
        self.space = 1 << 20
        """Bytes the connection takes per turn."""
        self.received: list[Packet] = []
        """Packets that nobody looked at yet."""
        self.session_present = False
        """The flag in CONNACK."""
        self.ended: str | None = None
        self.pause_reasons: set[str] = set()
        self.identity: Identity | None = gateway.guest
        """The user who logs in; None = the password is wrong."""
        self.logins: list[tuple[str | None, bytes | None]] = []
        self._answers = False
        self._rest = b""
        self._input = b""
        self.session = Session(self, gateway.clients, gateway.options)

    # Called by the session

    is_link = False

    @property
    def sink(self) -> Sink:
        return self

    def dirty(self) -> None:
        self.gateway.tick.dirty_connection(self)

    def await_written(self, lsn: int) -> None:
        self.gateway.waits += 1
        self.gateway.log.when_written(lsn, self._durable)

    def await_synced(self, lsn: int) -> None:
        self.gateway.waits += 1
        self.gateway.log.when_synced(lsn, self._durable)

    def _durable(self, ok: bool) -> None:
        self.gateway.waits -= 1
        self.session.durable(ok)

    def output_capacity(self) -> int:
        return max(self.space - self.out.size, 0)

    def pause_reading(self, reason: str) -> None:
        self.pause_reasons.add(reason)

    def resume_reading(self, reason: str) -> None:
        self.pause_reasons.discard(reason)

    def login(self, user_name: str | None, password: bytes | None) -> None:
        self.logins.append((user_name, password))
        if self.identity is not None:
            self.session.logged_in(self.identity)
        else:
            self.session.refused(0x86, "wrong password")

    def ask(self, identity: Identity, operation: str, topics: list[str]) -> bool:
        return False

    local = True

    def pause(self, seconds: float, then: Callable[[], None]) -> None:
        self.pause_reading("login")

        def go_on() -> None:
            then()
            self.resume_reading("login")

        self.gateway.loop.call_later(seconds, go_on)

    def scram(self) -> ScramLogin:
        return self.gateway.broker.users.scram(
            "mqtt", True, lambda name: split_user_name(name)[1], peer="::1"
        )

    def opened(self, user: str, client_id: str, version: int) -> None:
        pass

    def end(self, reason: str) -> None:
        self.ended = reason
        self.flush()

    def flush(self) -> None:
        found, self._rest = frames.split(self._rest + self.out.take())
        self.received += found

    def answer(self) -> None:
        if self._answers:
            self._answers = False
            self.session.answer()

    # Called by tests

    def send(self, data: bytes, *, settle: bool = True) -> Peer:
        """Send bytes in one read, which has a turn of its own if no other had one at this time."""
        data = self._input + data
        tick, now = self.gateway.tick, self.gateway.loop.time()
        alone = tick.begin_read(now)
        read, quick, consumed = bytearray(data), self.session.quick, -1
        if quick is not None:
            consumed = quick.try_read(read)
            self._answers = consumed >= 0 and quick.answers
            self.session.alive(now)
            self.session.want = quick.want
        if consumed < 0:
            consumed = self.session.receive(read, len(read), now)
        self._input = data[consumed:]
        if alone:
            tick.run_alone(self)
        else:
            self.answer()
            tick.schedule()
        if settle:
            self.gateway.settle()
        return self

    def drop(self) -> None:
        """The network is gone."""
        self.session.lost()
        self.gateway.settle()

    def take(self) -> list[Packet]:
        """The packets received since the last call."""
        self.gateway.settle()
        taken, self.received = self.received, []
        return taken

    def bytes_taken(self) -> bytes:
        """The same, as bytes."""
        return b"".join(frames.packet(p.kind, p.flags, p.body) for p in self.take())

    def publishes(self) -> list[Publish]:
        """The packets received since the last call, all of them PUBLISH."""
        found = self.take()
        assert all(p.kind == frames.PUBLISH for p in found), found
        return [frames.parse_publish(p, self.version) for p in found]

    def publish(self, topic: str, payload: bytes = b"x", *, settle: bool = True, **options: Any) -> Peer:
        if self.version == 5:
            options.setdefault("props", b"")
        return self.send(frames.publish(topic, payload, **options), settle=settle)

    def subscribe(self, *filters: tuple[str, int], props: bytes = b"") -> list[int]:
        """Subscribe; the results in SUBACK. Other packets stay for the next `take`."""
        self.take()
        self.send(frames.subscribe(9, *filters, version=self.version, props=props))
        suback = next(p for p in self.received if p.kind == 9)
        self.received.remove(suback)
        assert suback.body[:2] == b"\0\x09"
        return list(suback.body[3:] if self.version == 5 else suback.body[2:])

    @property
    def closed(self) -> bool:
        return self.session.state is State.CLOSED


class Gateway:
    """One process of penstock, as far as MQTT sessions see it."""

    def __init__(
        self,
        folder: Path,
        options: MqttOptions | None = None,
        clock: Clock | None = None,
        *,
        fsync: Literal["group", "never"] = "never",
        files: Files | None = None,
        rules: TopicGuard | None = None,
    ) -> None:
        self.folder = folder
        self.fsync = fsync
        self.options = options or MqttOptions()
        self.clock = clock or Clock()
        self.loop = Loop()
        self.waits = 0
        self.stopped = False
        self._calls: queue.SimpleQueue[tuple[Callable[..., object], tuple[object, ...]]] = queue.SimpleQueue()
        self.log = Log.open(
            folder, LogOptions(segment_bytes=1 << 20, fsync=fsync), clock=self.clock, files=files
        )
        self.log.attach(self._from_thread)
        load, load_feed = self.log.load, self.log.load_feed
        # Reads from the disk come back from another thread: what waits for them is counted.
        self.log.load = lambda lsn, callback: load(lsn, self._waited(callback))  # type: ignore[method-assign]
        self.log.load_feed = (  # type: ignore[method-assign]
            lambda feed, index, callback: load_feed(feed, index, self._waited(callback))
        )
        self.tick = Tick(self.log, self.loop)
        # Without a password to hash, which takes longer than a test.
        self.broker = Broker.open(self.log, self.tick, BrokerOptions(auth=AuthOptions(default_user="")))
        self.broker.authorizer.topic_guard = rules
        self.broker.users.set_user("guest", "", ())
        self.broker.authorizer.set("guest", DEFAULT_VHOST, Permission())
        self.guest = Identity("guest")
        self.vhost = self.broker.vhost(DEFAULT_VHOST)
        self.clients = Clients(self.broker, self.clock, self.options)
        self.settle()

    def _from_thread(self, callback: Callable[..., object], *arguments: object) -> None:
        self._calls.put((callback, arguments))

    def _waited(self, callback: Callable[[], None]) -> Callable[[], None]:
        self.waits += 1

        def called() -> None:
            self.waits -= 1
            callback()

        return called

    def settle(self) -> None:
        """Run turns until nothing moves any more."""
        while True:
            self.loop.settle()
            try:
                callback, arguments = self._calls.get(timeout=LIMIT_S if self.waits else 0.0)
            except queue.Empty:
                assert not self.waits, "a position that is waited for does not become durable"
                return
            callback(*arguments)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.now += seconds
        self.loop.advance(seconds)
        self.clients.handle_deadline()
        self.settle()

    def peer(self, version: int = 4) -> Peer:
        """A connection that has not said anything."""
        return Peer(self, version)

    def connect(self, client_id: str, version: int = 4, **options: Any) -> Peer:
        """A connected client; its CONNACK is taken."""
        peer = Peer(self, version)
        peer.send(frames.connect(client_id, version=version, **options))
        connack = peer.received.pop(0)
        assert connack.kind == 2 and connack.body[1] == 0, connack
        peer.session_present = bool(connack.body[0])
        return peer

    def stop(self) -> None:
        """A clean stop. Again: nothing."""
        if self.stopped:
            return
        self.stopped = True
        self.clients.close()
        self.broker.close()
        self.log.close_sync()

    def restart(self, rules: TopicGuard | None = None) -> Gateway:
        """Stop cleanly and start again, with these rules about topics."""
        self.stop()
        return Gateway(self.folder, self.options, self.clock, fsync=self.fsync, rules=rules)

    def crash(self, folder: Path) -> Gateway:
        """A gateway over a copy of the files, as a start after kill -9 at this moment finds them."""
        files_made(self.log)
        # A file without its name yet may come and go while this copies; a start removes those anyway.
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns("*.new"))
        return Gateway(folder, self.options, self.clock, fsync=self.fsync)
