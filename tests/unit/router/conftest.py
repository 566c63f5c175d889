"""Fixtures of the router's tests: a broker over a log in a temporary folder, which tests may restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue

import pytest

from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.router.authentication.users import AuthOptions
from penstock.router.authorization.identity import Actor, Identity
from penstock.router.authorization.permissions import Permission
from penstock.router.broker import DEFAULT_VHOST, Broker, BrokerOptions
from penstock.router.names import ENC_AMQP091, ENC_MQTT5, join_key_block
from penstock.router.vhost.vhost import Vhost
from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.queue.queue import Queue
from penstock.subscriptions.tick.tick import Tick
from tests.support.limits import LIMIT_S
from tests.support.queues import Clock, Loop

PERSISTENT = 2


class Connection:
    """Stands for a client's connection."""


class World:
    """A broker, its log and its turns; guest on two connections."""

    def __init__(self, folder: Path, options: BrokerOptions | None = None) -> None:
        self.folder = folder
        self.options = options or BrokerOptions(auth=AuthOptions(default_user=""))
        self.clock = Clock()
        self.guest = Identity("guest")
        self.actor = Actor(self.guest, Connection())
        self.other = Actor(self.guest, Connection())
        self._open()
        self.broker.authorizer.set("guest", DEFAULT_VHOST, Permission())

    def _open(self) -> None:
        self.loop = Loop()
        self.log = Log.open(self.folder, LogOptions(segment_bytes=1 << 20), clock=self.clock)
        self.calls: SimpleQueue[tuple[Callable[..., object], tuple[object, ...]]] = SimpleQueue()
        self.log.attach(lambda callback, *arguments: self.calls.put((callback, arguments)))
        self.tick = Tick(self.log, self.loop)
        self.broker = Broker.open(self.log, self.tick, self.options)
        self.vhost: Vhost = self.broker.vhost(DEFAULT_VHOST)

    def restart(self) -> None:
        """Stop cleanly and start again with the same data."""
        self.close()
        self._open()

    def close(self) -> None:
        self.broker.close()
        self.log.close_sync()

    # Shorthand

    def exchange(self, name: str, type_: str = "direct", **options: object) -> int:
        return self.vhost.declare_exchange(name, type_, self.actor, **options)  # type: ignore[arg-type]

    def queue(self, name: str, **options: object) -> Queue:
        return self.vhost.declare_queue(name, self.actor, **options).queue  # type: ignore[arg-type]

    def bind(
        self, queue: str, exchange: str, key: str = "", arguments: Mapping[str, object] | None = None
    ) -> int:
        return self.vhost.bind_queue(queue, exchange, key, self.actor, arguments)

    def publish(
        self,
        exchange: str,
        key: str,
        body: str = "x",
        *,
        flags: int = PERSISTENT,
        headers: Mapping[str, object] | None = None,
    ) -> bool:
        """From AMQP; whether a queue got it. An error of the route is raised."""
        published = self.vhost.publish(
            self.guest,
            ENC_AMQP091,
            join_key_block(exchange, key),
            b"",
            body.encode(),
            flags=flags,
            headers=headers,
        )
        if published.route.error is not None:
            raise published.route.error
        return published.route.routed

    def publish_mqtt(self, topic: str, body: str = "x") -> bool:
        published = self.vhost.publish(
            self.guest, ENC_MQTT5, topic.encode(), b"", body.encode(), flags=PERSISTENT
        )
        if published.route.error is not None:
            raise published.route.error
        return published.route.routed

    def read(self, queue: Queue) -> list[str]:
        """The bodies of all that is ready; they are settled."""
        return [body for body, _ in self.read_tags(queue)]

    def read_tags(self, queue: Queue) -> list[tuple[str, tuple[int, ...]]]:
        """The bodies and membership tags of all that is ready; they are settled."""
        self.log.flush()
        found = []
        cursor = queue.cursor
        while self._take(cursor):
            for index, (seq, _, match, *_) in enumerate(cursor.records()):
                batch, at = cursor.record(index)
                found.append((batch.record(at).body.decode(), cursor.match_tags(match)))
                cursor.settle(seq)
        return found

    def _take(self, cursor: Cursor) -> bool:
        """Take what there is, from disk when it left memory; False: nothing."""
        while not cursor.take(1024):
            if not self._load(cursor):
                return False
        return True

    def _load(self, cursor: Cursor) -> bool:
        loaded: list[bool] = []
        if cursor.cold:
            self.log.load(cursor.cold, lambda: loaded.append(True))
        elif cursor.cold_feed is not None:
            self.log.load_feed(cursor.cold_feed, cursor.cold_index, lambda: loaded.append(True))
        else:
            return False
        while not loaded:
            callback, arguments = self.calls.get(timeout=LIMIT_S)
            callback(*arguments)
        return True

    def settle(self) -> None:
        """Turn until nothing moves, reads from disk included."""
        self.loop.settle()
        while any(queue._loading for queue in self.broker.queues):
            callback, arguments = self.calls.get(timeout=LIMIT_S)
            callback(*arguments)
            self.loop.settle()

    def rows(self, table: str) -> int:
        return len(list(self.log.tables.items(table)))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "data")
    yield world
    world.close()
