"""A client at full speed waits for a busy disk before clients that send little have to."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from bench.load import read_exactly
from bench.load_mqtt import open_session, publish_packet, subscribe
from penstock.log_core.log import Log
from penstock.testing import Gateway
from tests.support.limits import LIMIT_S

FLOOD = publish_packet("flood", b"x" * 1000) * 40_000
"""More than half of what may wait for the disk, and less than all of it."""
SMALL = publish_packet("small", b"y" * 100)


class Stuck:
    """A committer that is asked for syncs and makes none."""

    def __init__(self, committer: Any) -> None:
        self._committer = committer

    def want(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._committer, name)


def log_of(gateway: Gateway) -> Log:
    assert gateway._log is not None
    return gateway._log


def on_loop(gateway: Gateway, call: Callable[[], Any]) -> Any:
    async def run() -> Any:
        return call()

    assert gateway._loop is not None
    return asyncio.run_coroutine_threadsafe(run(), gateway._loop).result(LIMIT_S)


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway(settings={"log.fsync": "group"}) as gateway:
        yield gateway


def test_a_client_that_sends_much_waits_for_the_disk_before_others(
    gateway: Gateway,
) -> None:
    log, port = log_of(gateway), gateway.listener("mqtt")
    committer = log.committer
    with (
        closing(open_session(port, "flood")) as flood,
        closing(open_session(port, "small")) as small,
        closing(open_session(port, "reader")) as reader,
    ):
        subscribe(reader, "small", 0)
        on_loop(gateway, lambda: setattr(log, "committer", Stuck(committer)))
        sender = threading.Thread(target=flood.sendall, args=(FLOOD,))
        sender.start()
        try:
            until(lambda: on_loop(gateway, lambda: len(log.held)))
            waiting = on_loop(gateway, lambda: log.backlog_bytes)
            for _ in range(100):
                small.sendall(SMALL)
                assert read_exactly(reader, len(SMALL)) == SMALL
            assert not log.paused
            assert on_loop(gateway, lambda: log.backlog_bytes) < waiting + 1_000_000
        finally:
            on_loop(gateway, lambda: (setattr(log, "committer", committer), log.sync()))
        sender.join(LIMIT_S)
        assert not sender.is_alive()
