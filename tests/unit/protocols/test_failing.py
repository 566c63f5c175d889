"""Timers that serve many objects: one that fails ends neither the others nor the timer."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.log_core.maintenance._seal import Needs
from penstock.protocols.http.data.pulling.leases import Leases
from penstock.protocols.http.webhooks.delivery.worker import Worker
from penstock.protocols.listening.listener import Listener
from penstock.protocols.mqtt.clients.client import Client as MqttClient
from penstock.protocols.mqtt.codec._shared_packets import forget_runs
from penstock.router.exchanges.entries import QueueEntry
from penstock.router.messages.half import Half, HalfMessage
from penstock.subscriptions.queue.queue import Queue
from tests.support.mqtt import Gateway
from tests.support.native_halves import producer, questions
from tests.support.native_kinds import consumer
from tests.support.native_session import Client, World
from tests.support.queues import Loop


class Fault(Exception):
    """A mistake in the gateway."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "data")
    yield world
    world.close()


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The logged errors; each has its traceback."""
    caplog.set_level(logging.ERROR)
    return caplog


def told(errors: pytest.LogCaptureFixture) -> list[str]:
    assert all(record.exc_info is not None for record in errors.records)
    found = [record.getMessage() for record in errors.records]
    errors.clear()
    return found


def test_a_half_message_that_cannot_be_asked_about_holds_up_no_other(
    world: World, errors: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = producer(world, check_each_ms=1000, max_checks=2)
    bad, good = (client.prepare(1, body)["transaction"] for body in (b"bad", b"good"))
    message = world.broker.halves._message

    def fails(half: Half) -> HalfMessage:
        if half.id == bad:
            raise Fault
        return message(half)

    monkeypatch.setattr(world.broker.halves, "_message", fails)
    world.pass_time(6.1)
    assert [one[0] for one in questions(client)] == [good]
    assert told(errors) == [
        f"half message {bad} of group 'g' could not be asked about or given up; it is looked at again in 1 s"
    ]
    world.pass_time(1.1)
    assert [one[0] for one in questions(client)] == [good]
    monkeypatch.undo()
    world.pass_time(1.1)
    assert world.broker.statistics()["half"] == 0, "both were asked about often enough"


def test_a_half_message_that_cannot_be_given_up_holds_up_no_other(
    world: World, errors: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = producer(world, expires_ms=60_000, dead_letter="dead")
    client.request("create_topic", topic="dead")
    for body in (b"bad", b"good"):
        client.prepare(1, body)
    client.lose()
    halves = world.broker.halves
    publish = halves._publish

    def fails(route: Any, place: Any, message: HalfMessage) -> int:
        if message.body == b"bad":
            raise Fault
        return publish(route, place, message)

    monkeypatch.setattr(halves, "_publish", fails)
    world.pass_time(61)
    assert (halves.statistics()["half"], halves.given_up) == (1, 1)
    assert len(told(errors)) == 1
    monkeypatch.undo()
    world.pass_time(31)
    assert (halves.statistics()["half"], halves.given_up, told(errors)) == (0, 2, [])


def test_messages_are_still_published_when_due_after_one_look_failed(
    world: World, errors: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(world)
    client.request("create_topic", topic="t")
    world.broker.delayed.schedule("/", int((world.clock.now + 5) * 1000), 1, b"\0\1t", b"", b"later")

    def fails(*_: object) -> None:
        raise Fault

    with monkeypatch.context() as patch:
        patch.setattr(world.log.delays, "take", fails)
        world.pass_time(5.1)
    assert told(errors) == ["what is due could not be published; it is tried again in a second"]
    world.pass_time(1.1)
    world.wait(lambda: world.broker.delayed.published == 1)


def test_a_queue_that_cannot_be_deleted_holds_up_no_other(
    world: World, errors: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(world)
    vhost, actor = client.session.vhost, client.session.actor
    for name in ("bad", "good"):
        vhost.declare_queue(name, actor, durable=True, arguments={"x-expires": 1000})
    unneeded = world.broker.queues.on_unneeded
    assert unneeded is not None

    def fails(queue: Queue) -> None:
        if queue.name == "bad":
            raise Fault
        unneeded(queue)

    monkeypatch.setattr(world.broker.queues, "on_unneeded", fails)
    world.pass_time(1.1)
    assert set(vhost.queues) == {"bad"}
    assert len(told(errors)) == 1
    monkeypatch.undo()
    world.pass_time(1.1)
    assert not vhost.queues


def test_a_cursor_that_cannot_be_kept_is_kept_later_and_the_others_now(
    world: World, errors: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(world)
    vhost, actor = client.session.vhost, client.session.actor
    queues = [vhost.declare_queue(name, actor, durable=True).queue for name in ("bad", "good")]
    world.pass_time(1)
    reap = Queue._reap

    def fails(queue: Queue) -> None:
        if queue is queues[0]:
            raise Fault
        reap(queue)

    with monkeypatch.context() as patch:
        patch.setattr(Queue, "_reap", fails)
        for queue in queues:
            queue.cursor.purge()
        world.pass_time(0.1)
        assert [queue.cursor.dirty for queue in queues] == [True, False]
    assert told(errors)
    world.pass_time(0.2)
    assert not queues[0].cursor.dirty


def test_quotas_are_looked_at_after_a_look_that_failed(
    world: World, errors: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(world)
    client.session.vhost.declare_queue("q", client.session.actor, durable=True)
    world.broker.administration.set_vhost_limits("/", {"max-backlog-bytes": 1})

    def fails(*_: object) -> int:
        raise Fault

    with monkeypatch.context() as patch:
        patch.setattr(world.log, "held_bytes", fails)
        world.pass_time(1.1)
    assert len(told(errors)) == 1
    looked: list[int] = []
    monkeypatch.setattr(world.log, "held_bytes", lambda lp, low: looked.append(low) or 0)
    world.pass_time(1.1)
    assert looked


def test_acknowledgement_timeouts_go_on_after_one_that_failed(
    world: World, errors: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = Client(world)
    sender.request("open_producer", handle=1, topic="t", create=True)
    taker = consumer(world, "shared", "a", ack_timeout_ms=1000)
    sender.produce(1, b"0")
    assert taker.bodies() == [b"0"]
    (one,) = taker.session.codec.all_consumers()

    class Failing:
        """The consumer, as its timer sees it."""

        def __getattr__(self, name: str) -> Any:
            if name == "expire" and broken:
                raise Fault
            return getattr(one, name)

    broken = True
    taker.session.consuming._timers[one].cancel()
    failing: Any = Failing()
    taker.session.consuming._watch(failing, 1.0)
    failing.watch()  # something is out
    world.pass_time(1.1)
    assert len(told(errors)) == 1
    broken = False
    world.pass_time(1.1)
    assert taker.bodies() == [b"0"]


def test_a_lease_that_fails_as_it_ends_holds_up_no_other(
    world: World, errors: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    leases = Leases(world.tick, lambda: now)
    ended: list[str] = []

    class Taken:
        """A leased message."""

        def __init__(self, name: str) -> None:
            self.queue = self.name = name

        def requeue(self) -> None:
            if self.name == "bad":
                raise Fault
            ended.append(self.name)

    for name in ("bad", "good"):
        leases.add(Taken(name), 1, None)  # type: ignore[arg-type]
    now = 2.0
    leases.expire()
    assert (ended, len(leases), len(told(errors))) == (["good"], 0, 1)


def test_a_will_that_cannot_be_published_holds_up_no_other(
    tmp_path: Path, errors: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway(tmp_path / "data")
    watcher = gateway.connect("watcher", 5)
    watcher.subscribe(("w/#", 0))
    for name in ("bad", "good"):
        will = (f"w/{name}", b"gone", 0, False)
        gateway.connect(
            name, 5, clean=False, props=b"\x11\0\0\0\x64", will=will, will_props=b"\x18\0\0\0\x05"
        ).drop()
    publish = gateway.clients.publish_will

    def fails(client: MqttClient) -> None:
        if client.client_id == "bad":
            raise Fault
        publish(client)

    monkeypatch.setattr(gateway.clients, "publish_will", fails)
    gateway.advance(6)
    assert [message.topic for message in watcher.publishes()] == [b"w/good"]
    assert len(told(errors)) == 1
    forget_runs()
    gateway.stop()


def test_a_policy_that_fails_at_one_queue_holds_up_no_other(
    world: World, errors: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(world)
    vhost = client.session.vhost
    for name in ("good", "bad"):
        vhost.declare_queue(name, client.session.actor, durable=True)
    apply = vhost.apply

    def fails(entry: QueueEntry, effective: Any) -> None:
        if entry.name == "bad":
            raise Fault
        apply(entry, effective)

    monkeypatch.setattr(vhost, "apply", fails)
    world.broker.administration.put_policy("/", "p", pattern="", definition={"max-length": 1})
    assert vhost.queues["good"].effective != vhost.queues["bad"].effective
    assert len(told(errors)) == 1


def test_a_webhook_looks_again_after_it_failed(errors: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    kicked: list[str] = []

    class Failing:
        """Of a worker what `_kick` sees."""

        webhook = SimpleNamespace(name="w")
        _loop = loop
        _running = True
        _timer = None

        def _send_due(self) -> None:
            kicked.append("kicked")
            raise Fault

        def _kick(self) -> None:
            Worker._kick(self)  # type: ignore[arg-type]

    Failing()._kick()
    assert told(errors) == ["the webhook 'w' failed to send; it is tried again in 30 s"]
    loop.advance(31)
    assert len(kicked) == 2


def test_a_connection_that_cannot_be_looked_after_is_dropped_and_holds_up_no_other(
    errors: pytest.LogCaptureFixture,
) -> None:
    seen: list[str] = []

    class Connection:
        """As a listener sees it."""

        def __init__(self, name: str) -> None:
            self.name = name

        def check(self, now: float) -> None:
            if self.name == "bad":
                raise Fault
            seen.append(self.name)

        def held_bytes(self) -> int:
            return 5

        def abort(self, reason: str) -> None:
            seen.append(f"aborted {self.name}")

    held: list[int] = []
    buffers = SimpleNamespace(report=lambda _, size, now: held.append(size), surplus=0)
    listener = SimpleNamespace(
        _loop=Loop(),
        _check_later=lambda: None,
        connections=[Connection("bad"), Connection("good")],
        _context=SimpleNamespace(buffers=buffers, logger=logging.getLogger("penstock.test")),
    )
    listener._check_some = lambda *what: Listener._check_some(listener, *what)  # type: ignore[arg-type]
    Listener._check(listener, 0.0)  # type: ignore[arg-type]
    assert (seen, held, len(told(errors))) == (["aborted bad", "good"], [5], 1)


def test_closed_segments_are_looked_after_though_work_on_one_failed(
    world: World, errors: pytest.LogCaptureFixture
) -> None:
    heard: list[object] = []

    def work() -> None:
        raise Fault

    world.log._housekeeping._background(work, lambda _, error: heard.append(error))
    world.wait(lambda: heard)
    assert isinstance(heard[0], OSError)
    assert len(told(errors)) == 1


def test_records_of_a_queue_that_cannot_tell_its_needs_are_kept(
    world: World, errors: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(world)
    client.session.vhost.declare_queue("q", client.session.actor, durable=True)

    def fails(*_: object) -> int:
        raise Fault

    none, whole = Needs(1, 100), Needs(1, 100)
    whole.need_marked(b"\xff" * 13)
    done: list[str] = []
    queues = world.broker.queues
    with monkeypatch.context() as patch:
        patch.setattr(Queue, "low", fails)
        queues.needs(none, lambda: done.append("done"))
        assert (none.signature(), done) == (whole.signature(), ["done"])
        patch.setattr("penstock.subscriptions.queues.lowest", fails)
        patch.setattr("penstock.subscriptions.queues._SWEEP_AT_ONCE", 0)
        queues.low_water()
    assert len(told(errors)) == 2
    assert queues.low_water() > 0, "a sweep that failed is begun anew"
