"""Fixtures of the tests of `penstock log`: a broker's data folder, and the command itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import main
from tests.unit.router.conftest import World

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A broker with a queue of three messages, one of them done, and a topic binding with one; running."""
    world = World(tmp_path / "data")
    orders = world.queue("orders", durable=True)
    world.queue("audit", durable=True)
    world.bind("audit", "amq.topic", "log.#")
    for number in range(3):
        world.publish("", "orders", f"order {number}")
    world.log.flush()
    assert orders.cursor.take(1) == 1
    orders.cursor.settle_taken()
    world.publish("amq.topic", "log.warning", "hot")
    world.publish_mqtt("log/cold", "brr")
    world.publish("amq.topic", "elsewhere", "nobody wants it")
    return world


@pytest.fixture
def stopped(world: World) -> Path:
    """The folder of `world`, stopped cleanly."""
    world.close()
    return world.folder


@pytest.fixture
def lines(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command; its exit code must be `code`; the lines of JSON it printed."""

    def run(*words: object, code: int = 0) -> list[dict[str, Any]]:
        capfd.readouterr()
        assert main([str(word) for word in words]) == code, capfd.readouterr()
        return [json.loads(line) for line in capfd.readouterr().out.splitlines()]

    return run


def flip(path: Path, at: int) -> None:
    """Damage one byte of a file."""
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x20
    path.write_bytes(raw)
