"""Queues with every argument against a plain model, over random histories of what a client can do.

penstock runs in this process, with a clock that is moved; `--broker=rabbitmq` proves the model itself, in
real time, with fewer and shorter histories.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.reference.queue_model import Arguments, QueueModel
from tests.support.examples import histories
from tests.support.queue_drivers import Driver, Inside, Outside

ARGUMENTS = st.builds(
    Arguments,
    ttl=st.booleans(),
    max_length=st.sampled_from([None, None, 1, 2, 3]),
    overflow=st.sampled_from(["drop-head", "reject-publish", "reject-publish-dlx"]),
    priority_max=st.sampled_from([0, 0, 2]),
    single_active=st.booleans(),
    dead_letters=st.sampled_from([True, True, False]),
)


class QueueMachine(RuleBasedStateMachine):
    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self.driver = driver
        self.number = 0
        self.consumer = 0
        self.handles: dict[int, object] = {}
        self.dead: list[tuple[int, str]] = []

    def teardown(self) -> None:
        self.driver.close()

    @initialize(arguments=ARGUMENTS)
    def declare(self, arguments: Arguments) -> None:
        self.model = QueueModel(arguments)
        self.driver.declare(arguments)

    @rule(priorities=st.lists(st.integers(0, 3), min_size=1, max_size=4))
    def publish(self, priorities: list[int]) -> None:
        for priority in priorities:
            self.number += 1
            assert self.driver.publish(self.number, priority) == self.model.publish(self.number, priority)
            self.agrees()

    @rule()
    def get(self) -> None:
        got, expected = self.driver.get(dead=False), self.model.get()
        if expected is None or got is None:
            assert got is expected is None
            return
        number, redelivered, _, handle = got
        assert (number, redelivered) == (expected.number, expected.redelivered)
        self.handles[number] = handle

    @rule()
    def get_dead(self) -> None:
        got, expected = self.driver.get(dead=True), self.model.get_dead()
        if expected is None or got is None:
            assert got is expected is None
            return
        assert (got[0], got[2]) == expected
        self.driver.settle(got[3], "ack")

    @precondition(lambda self: self.handles)
    @rule(which=st.integers(0, 9), how=st.sampled_from(["ack", "requeue", "reject"]))
    def settle(self, which: int, how: str) -> None:
        number = sorted(self.handles)[which % len(self.handles)]
        self.driver.settle(self.handles.pop(number), how)
        {"ack": self.model.ack, "requeue": self.model.requeue, "reject": self.model.reject}[how](number)

    @rule()
    def purge(self) -> None:
        assert self.driver.purge() == self.model.purge()

    @precondition(lambda self: self.model.arguments.ttl)
    @rule()
    def wait(self) -> None:
        self.driver.wait()
        self.model.wait()

    @precondition(lambda self: self.model.arguments.single_active and len(self.model.consumers) < 3)
    @rule()
    def consume(self) -> None:
        self.consumer += 1
        self.driver.consume(f"c{self.consumer}")
        self.model.consume(f"c{self.consumer}")

    @precondition(lambda self: self.model.consumers)
    @rule(which=st.integers(0, 2))
    def cancel(self, which: int) -> None:
        name = self.model.consumers[which % len(self.model.consumers)]
        self.driver.cancel(name)
        self.model.cancel(name)

    @precondition(lambda self: self.driver.can_restart)
    @rule()
    def restart(self) -> None:
        self.driver.restart()
        self.model.restart()
        self.model.got.clear()
        self.handles.clear()

    @invariant()
    def agrees(self) -> None:
        """Eventually; at once where time stands still."""
        expected = (len(self.model.ready), len(self.model.dead)), self.model.got
        deadline = self.driver.spent_s() + self.driver.timeout_s
        while True:
            deliveries = self.driver.deliveries()
            told = {name: [got[:2] for got in gots] for name, gots in deliveries.items()}
            seen = self.driver.counts(), told
            if seen == expected:
                break
            assert self.driver.spent_s() < deadline, f"{seen} is not {expected}"
        for gots in deliveries.values():
            for number, _, _, handle in gots:
                if number in self.model.out and self.model.holding_of(number):
                    self.handles[number] = handle


def _inside() -> Driver:
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="penstock-queue-", dir=memory if memory.is_dir() else None))
    driver = Inside(folder)
    close = driver.close

    def clean() -> None:
        close()
        shutil.rmtree(folder)

    driver.close = clean  # type: ignore[method-assign]
    return driver


def test_expired_messages_of_a_queue_with_priorities_are_dead_lettered_in_order() -> None:
    machine = QueueMachine(_inside())
    machine.declare(Arguments(ttl=True, priority_max=2, dead_letters=True))
    machine.publish([0, 0, 2])
    machine.wait()
    for _ in range(3):
        machine.get_dead()
    machine.teardown()


def test_a_queue_with_any_arguments_behaves_as_the_model(
    broker_name: str, request: pytest.FixtureRequest
) -> None:
    make: Callable[[], Driver]
    if broker_name == "penstock":
        make, examples, steps = _inside, 40, 20
    else:
        port = request.getfixturevalue("amqp_port")
        make, examples, steps = (lambda: Outside(port)), 25, 15
    run_state_machine_as_test(
        lambda: QueueMachine(make()),  # type: ignore[arg-type]
        settings=settings(
            max_examples=histories(examples),
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
