"""Fixtures of the tests of subscriptions: a log in a temporary folder, queues on a loop without sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.log_core.feeds._feed import Feed
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from tests.support.queues import Clock, Loop, World


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def log(tmp_path: Path, clock: Clock) -> Iterator[Log]:
    log = Log.open(tmp_path / "data", LogOptions(), clock=clock)
    yield log
    log.close_sync()


@pytest.fixture
def world(log: Log, loop: Loop) -> World:
    return World(log, loop)


@pytest.fixture
def feed(log: Log) -> Feed:
    return log.new_feed()
