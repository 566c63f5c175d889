"""The sampler on a clock of the test's own: short slices, and no question to connections that were idle."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from penstock.protocols.http.management.history import History
from penstock.protocols.http.management.rates import INTERVAL_S, TOTALS, Sampler
from penstock.protocols.net.connection_info import ChannelInfo, ConnectionInfo, Totals

INFO_S = 0.0001
"""Time that a connection takes to describe itself here."""


class World:
    """A broker without queues, and connections that can be counted on."""

    def __init__(self, count: int, channels: int = 0) -> None:
        self.now = 100.0
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.slices: list[float] = []
        self.connections = [Connection(self, number, channels) for number in range(count)]
        tick: Any = SimpleNamespace(every=lambda _s, call: None, after=self.after)
        broker: Any = SimpleNamespace(
            queues=SimpleNamespace(on_deleted=[], moved=lambda: []), vhosts={}, tick=tick
        )
        listener = SimpleNamespace(connections=self.connections)
        registry: Any = SimpleNamespace(listeners=lambda: [("amqp", listener)])
        self.history = History(1 << 20, lambda: self.now)
        self.sampler = Sampler(broker, registry, lambda: self.now, self.history)

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        self.due.append((self.now + delay_s, call))

    def sample(self) -> None:
        """One whole pass, `INTERVAL_S` after the last one began."""
        began = self.now
        self.timed(self.sampler.start)
        while self.due:
            at, call = self.due.pop(0)
            self.now = max(self.now, at)
            self.timed(call)
        self.now = max(self.now, began + INTERVAL_S)

    def timed(self, call: Callable[[], None]) -> None:
        began = self.now
        call()
        self.slices.append(self.now - began)


class Connection:
    def __init__(self, world: World, number: int, channels: int) -> None:
        self.id = number + 1
        self.bytes_in = self.bytes_out = 10
        self.asked = 0
        self.published = 0
        self._world = world
        self._channels = channels

    def publish(self, count: int) -> None:
        self.published += count
        self.bytes_in += 100 * count

    def info(self) -> ConnectionInfo:
        self.asked += 1
        self._world.now += INFO_S
        channels = [
            ChannelInfo(
                number=number,
                confirm=False,
                transactional=False,
                prefetch=0,
                global_prefetch=0,
                unacknowledged=0,
                unconfirmed=0,
                uncommitted=0,
                totals=Totals(published=self.published),
                consumers=[],
            )
            for number in range(1, self._channels + 1)
        ]
        return ConnectionInfo(
            protocol="AMQP 0-9-1",
            user="guest",
            vhost="/",
            state="running",
            client_properties={},
            mechanism="PLAIN",
            timeout_s=60,
            frame_max=0,
            channel_max=0,
            totals=Totals(published=self.published),
            channels=channels,
        )


def published(world: World, key: object) -> float:
    return dict(zip(TOTALS, world.sampler.rates(key, len(TOTALS)), strict=False))["publish"]  # type: ignore[arg-type]


def test_ten_thousand_connections_hold_the_loop_up_for_milliseconds_only() -> None:
    world = World(10_000)
    world.sample()
    assert all(connection.asked == 1 for connection in world.connections)
    assert max(world.slices) < 0.004


def test_a_connection_that_moved_nothing_is_not_asked_again_and_its_rates_fall_to_0() -> None:
    world = World(2, channels=1)
    busy, idle = world.connections
    for connection in world.connections:
        connection.publish(1)
    world.sample()
    for connection in world.connections:
        connection.publish(50)
    world.sample()
    assert published(world, idle.id) == published(world, (idle.id, 1)) == 10.0
    busy.publish(500)
    world.sample()
    assert (busy.asked, idle.asked) == (3, 2)
    assert published(world, busy.id) == published(world, (busy.id, 1)) == 100.0
    assert published(world, idle.id) == published(world, (idle.id, 1)) == 0.0


def test_an_idle_connection_that_goes_on_has_its_rate_again() -> None:
    world = World(1, channels=2)
    connection = world.connections[0]
    for count in (5, 0, 0, 25):
        connection.publish(count)
        world.sample()
    assert published(world, connection.id) == published(world, (connection.id, 2)) == 5.0


def test_a_connection_that_is_gone_is_forgotten() -> None:
    world = World(1)
    world.sample()
    world.connections[0].publish(50)
    world.sample()
    assert published(world, 1) == 10.0
    world.connections.clear()
    world.sample()
    assert published(world, 1) == 0.0


def test_the_traffic_of_a_vhost_does_not_fall_when_a_connection_ends() -> None:
    world = World(2)
    for connection in world.connections:
        connection.publish(5)
    world.sample()
    world.sample()
    assert world.sampler.traffic("/")[0] == 10
    world.connections.pop().publish(0)
    world.connections[0].publish(3)
    world.sample()  # forgets the one that is gone
    world.sample()
    assert world.sampler.traffic("/")[0] == 13
