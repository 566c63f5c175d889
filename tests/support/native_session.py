"""The native protocol without sockets: sessions over a real broker in a temporary folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Literal

from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.protocols.amqp.codec.properties import headers_of
from penstock.protocols.amqp.messages.dead_letters import rewrite
from penstock.protocols.headers.delay import WORDS
from penstock.protocols.native.options import NativeOptions
from penstock.protocols.native.session.session import Session, State
from penstock.protocols.net.outbuffer import OutBuffer
from penstock.router.authorization.identity import Identity
from penstock.router.broker import Broker
from penstock.sdk.message import properties_block
from penstock.subscriptions.tick.tick import Tick
from tests.reference import native_frames as wire
from tests.support.limits import LIMIT_S
from tests.support.logs import Unsynced
from tests.support.queues import Clock, Loop

PLAIN = b"\x10\x00\x02"
"""Properties: delivery-mode 2."""
_ANSWERS = {0x04, 0x06, 0x07, 0x08, 0x0F, 0x12, 0x13, 0x21, 0x25, 0x26, 0x27, 0x29, 0x30}
"""Frames of a gateway that somebody is logged in to."""
_JSON = {0x06, 0x0F, 0x13, 0x26}


class World:
    """A broker over a log in `folder`, and its time."""

    def __init__(
        self,
        folder: Path,
        options: NativeOptions | None = None,
        *,
        segment_bytes: int = 1 << 20,
        tail_cache_bytes: int = 128 << 20,
        fsync: Literal["group", "never"] = "never",
    ) -> None:
        self.folder = folder
        self.log_options = LogOptions(
            segment_bytes=segment_bytes, tail_cache_bytes=tail_cache_bytes, fsync=fsync, min_free_bytes=0
        )
        self.options = options or NativeOptions()
        self.clock = Clock()
        self._open()

    def _open(self) -> None:
        self.loop = Loop()
        self.log = Log.open(self.folder, self.log_options, clock=self.clock, files=Unsynced())
        self.tick = Tick(self.log, self.loop)
        self.broker = Broker.open(self.log, self.tick, rewrite=rewrite, delay_words=WORDS)
        self.broker.headers_of = headers_of
        self.clients: list[Client] = []

    def settle(self) -> None:
        """Turn until nothing is to be done now, and nothing is read from disk, also of what is due."""
        ends = monotonic() + LIMIT_S
        while True:
            self._turn()
            if not self.log.delays.reading and not any(client.loads() for client in self.clients):
                break
            assert monotonic() < ends, "the log's reader does not come back"
            sleep(0.001)
        self._turn()

    def _turn(self) -> None:
        for _ in range(3):
            self.tick.schedule()
            self.loop.settle()
            for client in self.clients:
                client.look()

    def wait(self, condition: Callable[[], object]) -> None:
        """Turn until `condition` holds; for what the log's threads bring."""
        ends = monotonic() + LIMIT_S
        while not condition():
            assert monotonic() < ends, "waited for 30 s"
            sleep(0.001)
            self.settle()

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.loop.advance(seconds)
        self.settle()

    def restart(self, *, clean: bool = True) -> None:
        """Stop, and start again with the same data; not `clean`: nobody was told."""
        if clean:
            for client in list(self.clients):
                client.session.lost()
            self.settle()
            self.broker.close()
            self.log.close_sync()
        else:
            self.log.flush()
            self.log.wait_synced(self.log.written_lsn)
            self.log.failed = RuntimeError("killed")
            self.broker.users.close()
            self.log.close_sync()
        self._open()

    def close(self) -> None:
        for client in list(self.clients):
            client.session.lost()
        self.broker.close()
        self.log.close_sync()


class Client:
    """One connection, its bytes carried by hand."""

    def __init__(
        self, world: World, *, login: bool = True, user: str = "guest", capabilities: tuple[str, ...] = ()
    ) -> None:
        self.world = world
        self.out = OutBuffer()
        self.session = Session(
            world.broker,
            world.options,
            self.out,
            owner=self,
            output_capacity=lambda: 1 << 20,
            dirty=lambda: None,
            look=lambda: None,
            go_on=self._go_on,
        )
        self.frames: list[tuple[int, int, bytes]] = []
        self._next = 0
        self._rest = b""
        self._may_go_on = False
        self.alive = True
        """It answers PINGs."""
        world.clients.append(self)
        if login:
            hello = {"versions": [1], "client": "test", "capabilities": list(capabilities)}
            self.send(b"PENSTOCK" + self.json_frame(0x01, hello))
            self.send(self.json_frame(0x03, {"user": user, "password": user}))
            self.log_in(user)
            assert [kind for kind, _, _ in self.take()] == [0x02, 0x04]

    @staticmethod
    def json_frame(kind: int, value: dict[str, Any], id: int = 0) -> bytes:
        return wire.frame(kind, id, json.dumps(value).encode())

    def log_in(self, user: str = "guest") -> None:
        """The password was right."""
        login, self.session.login = self.session.login, None
        assert login is not None
        self.session.authenticated(login, Identity(user, frozenset(("administrator",))))

    def send(self, data: bytes) -> None:
        """Hand bytes over, and let everything happen that follows."""
        self._rest += data
        while True:
            buffer = bytearray(self._rest)
            consumed = self.session.receive(buffer, len(buffer))
            self._rest = self._rest[consumed:] if self.session.state is not State.ENDED else b""
            self.world.settle()
            if not self.session.codec.more:
                break

    def _go_on(self) -> None:
        self._may_go_on = True

    def look(self) -> None:
        if self._may_go_on:
            self._may_go_on = False
            rest = bytearray(self._rest)
            self._rest = self._rest[self.session.receive(rest, len(rest)) :]
        if self.session.state is State.RUNNING:
            self.session.durable(True)
        data = self.out.take()
        if data:
            self.frames += wire.frames(data)
        if self.alive and not self._rest and any(frame[0] == 0x07 for frame in self.frames):
            self.frames = [frame for frame in self.frames if frame[0] != 0x07]
            pong = bytearray(wire.frame(0x08, 0, b""))
            self.session.receive(pong, len(pong))

    def take(self) -> list[tuple[int, int, bytes]]:
        """The frames received since the last call."""
        self.world.settle()
        found, self.frames = self.frames, []
        return found

    def loads(self) -> bool:
        """Whether something is being read for one of its consumers."""
        if self.session.state is not State.RUNNING:
            return False
        return any(one.queue._loading for one in self.session.codec.all_consumers() if one.attached)

    def request(self, do: str, **fields: Any) -> dict[str, Any]:
        """Ask; the answer, or the error with its `code`."""
        return self.answer_to(lambda request: self.json_frame(0x05, {"do": do, **fields}, request))

    def prepare(self, handle: int, body: bytes, props: bytes = PLAIN) -> dict[str, Any]:
        """Send a half message; the answer, or the error."""
        return self.answer_to(lambda request: wire.prepare(handle, request, props, body))

    def answer_to(self, frame: Callable[[int], bytes]) -> dict[str, Any]:
        """The answer to a frame that is made with the number of a request, or the error with its `code`."""
        self._next += 1
        before, self.frames = self.frames, []
        self.send(frame(self._next))
        self.world.wait(lambda: self._answers())
        answers = self._answers()
        self.frames = before + [one for one in self.frames if one is not answers[0]]
        value: dict[str, Any] = json.loads(answers[0][2])
        return value

    def _answers(self) -> list[tuple[int, int, bytes]]:
        return [one for one in self.frames if one[0] in (0x06, 0x0F) and one[1] == self._next]

    def ended(self) -> dict[str, Any]:
        """The error that the connection ended with."""
        self.world.settle()
        kind, id, payload = self.frames[-1]
        assert (kind, id) == (0x0F, 0)
        assert self.session.state is State.ENDED
        told: dict[str, Any] = json.loads(payload)
        return told

    def delivered(self) -> list[dict[str, Any]]:
        """The messages that have come since the last `take`, each with its `tag` and `consumer`."""
        found = []
        kept = []
        self.world.settle()
        for kind, id, payload in self.frames:
            delivery = wire.delivery(kind, payload)
            if delivery is None:
                kept.append((kind, id, payload))
                continue
            first, pull, messages = delivery
            for i, message in enumerate(messages):
                found.append({**message, "tag": first + i, "consumer": id, "pull": pull})
        self.frames = kept
        return found

    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.delivered()]

    def events(self) -> list[dict[str, Any]]:
        self.world.settle()
        found = [json.loads(payload) for kind, _, payload in self.frames if kind == 0x26]
        self.frames = [one for one in self.frames if one[0] != 0x26]
        return found

    def produce(self, handle: int, *bodies: bytes, sequence: int = 0, acks: int = 2) -> None:
        self.send(wire.produce(handle, sequence, acks, [(PLAIN, body) for body in bodies]))

    def lose(self) -> None:
        """The connection is lost."""
        self.session.lost()
        self.world.clients.remove(self)
        self.world.settle()


def keyed(handle: int, sequence: int, messages: list[tuple[str, bytes]]) -> bytes:
    """A PRODUCE frame of (key, body)."""
    items = [(properties_block(key, None, None, True), body) for key, body in messages]
    return wire.produce(handle, sequence, 2, items)


def assert_harmed_nobody(client: Client) -> None:
    """After any input, the client was answered with whole frames, and others are served when it is gone."""
    for kind, _, payload in client.take():
        assert kind in _ANSWERS, hex(kind)
        if kind in _JSON:
            assert isinstance(json.loads(payload), dict)
        wire.delivery(kind, payload)
    client.lose()
    other = Client(client.world)
    other.request("open_producer", handle=1, topic="alive", create=True)
    other.request("subscribe", handle=2, topic="alive", subscription="s", kind="exclusive", durable=False)
    other.send(wire.credit(2, 1, 1000))
    other.produce(1, b"alive")
    assert other.bodies() == [b"alive"]
    other.request("delete_topic", topic="alive")
    other.lose()


def opened(world: World, **more: Any) -> Client:
    """A client with a producer of topic t."""
    client = Client(world)
    answer = client.request("open_producer", handle=1, topic="t", create=True, **more)
    assert "code" not in answer
    return client


def read_all(client: Client, handle: int = 90) -> list[bytes]:
    """All that topic t holds."""
    client.request("read", handle=handle, topic="t", start="earliest")
    client.send(wire.credit(handle, 100_000, 1 << 30))
    found = client.bodies()
    client.request("close", handle=handle)
    return found
